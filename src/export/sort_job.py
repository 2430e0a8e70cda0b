#!/usr/bin/env python3
"""Sorts and merges the lists of an index with Apache Spark.

    spark-submit sort.py [--inputs inputs.txt] [--parts N] OUTPUT

Written by `ecluse export --sort-job`, with the list of its inputs beside it: the flat index of the current generation and
the days that wait, one a line, bytes and path with a tab between them. OUTPUT is a directory that is not there yet, on a file
system that Spark writes to. Its parts, put together in the order of their names, are the next flat index, byte for byte what
bigmerge would write: lines in the order of their bytes (LC_ALL=C), equal lines once.

What bigmerge would not take is not taken: a file that is cut short or not as long as the list says, a line that is none of an
index, one longer than 8 MiB. The job ends with 65 then, and OUTPUT has no _SUCCESS. Lists that are out of order are sorted.

Works with Spark 3.5 and 4; no package beside it is needed.
"""

import argparse
import os
import sys

# No line of an index is longer; ecluse holds a list that has one.
LINE_BYTES = 8 << 20
# Bytes of input for each part, unless --parts says how many.
PART_BYTES = 128 << 20
# Parts are put together in the order of their names, which have five digits.
MOST_PARTS = 99_999
# A key, a time of 14 or 17 digits and more, or the header of a CDX file.
LINE = r"\A(?:[^ ]+ (?:[0-9]{14}|[0-9]{17}) | CDX )"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class BadInput(Exception):
    """What is wrong with the inputs, in one line."""


def read_list(path):
    """Returns the inputs: (bytes, path)."""
    inputs = []
    with open(path, encoding="utf-8", newline="\n") as lines:
        for number, line in enumerate(lines, 1):
            size, tab, name = line.rstrip("\n").partition("\t")
            if not (tab and name and size.isascii() and size.isdigit()):
                raise BadInput(f"line {number} of {path} is no size and path")
            inputs.append((int(size), name))
    return inputs


def escaped(path):
    """Spark takes paths for patterns."""
    return "".join("\\" + c if c in "\\{}[]*?" else c for c in path)


def located(path):
    """A path of this machine is one, whatever the default file system of Spark is."""
    return "file://" + path if path.startswith("/") else path


def look_at(spark, size, path):
    """Fails unless a file is as long as the list says, and ends with a line."""
    jvm = spark.sparkContext._jvm
    file = jvm.org.apache.hadoop.fs.Path(path)
    system = file.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
    if not system.exists(file):
        raise BadInput(f"{path} is not there")
    found = system.getFileStatus(file).getLen()
    if found != size:
        raise BadInput(f"{path} has {found} bytes, {size} were listed")
    stream = system.open(file)
    try:
        first = bytes(stream.read() for _ in range(min(size, len(BYTE_ORDER_MARK))))
        stream.seek(size - 1)
        last = stream.read()
    finally:
        stream.close()
    if last != 0x0A:
        raise BadInput(f"the last line of {path} has no line feed: the file was cut short")
    if first == BYTE_ORDER_MARK:
        raise BadInput(f"{path} begins with a byte order mark, which Spark would take off")


def sort(spark, inputs, output, parts):
    """Sorts the inputs into the parts of a new directory."""
    from pyspark.sql import functions as f

    # An empty file has no line, and nothing that could be cut short.
    inputs = [(size, located(path)) for size, path in inputs if size]
    if not inputs:
        raise BadInput("there is no line to sort")
    for size, path in inputs:
        look_at(spark, size, path)
    if parts is None:
        parts = -(-sum(size for size, _ in inputs) // PART_BYTES)
    parts = max(1, min(parts, MOST_PARTS))
    # Spark reads and writes the bytes of a text as they are, and compares them as bytes, also where they are no UTF-8. A line
    # ends with a line feed and nothing else: by itself Spark would also cut at carriage returns.
    lines = spark.read.text([escaped(path) for _, path in inputs], lineSep="\n")
    read = len(set(lines.inputFiles()))
    if read != len({path for _, path in inputs}):
        raise BadInput(f"Spark reads {read} of {len(inputs)} files: it leaves out names that begin with . or _")
    value = f.col("value")
    fault = (
        f.when(f.octet_length(value) > LINE_BYTES, f.lit(f"longer than {LINE_BYTES} bytes"))
        .when(~value.rlike(LINE), f.lit("no line of an index"))
    )
    excerpt = f.substring(value, 1, 60)
    said = f.concat(f.lit("ECLUSE: "), f.input_file_name(), f.lit(" has a line that is "), fault, f.lit(": "), excerpt)
    checked = lines.select(f.when(fault.isNotNull(), f.raise_error(said)).otherwise(value).alias("value"))
    # Equal lines come into the same range, so that no second exchange is needed to have each once.
    ranged = checked.repartitionByRange(parts, "value").dropDuplicates(["value"]).sortWithinPartitions("value")
    ranged.write.option("lineSep", "\n").option("compression", "none").text(output)


def said_by(error):
    """What a task said of a line, without what Spark puts around it."""
    for line in str(error).splitlines():
        begin = line.find("ECLUSE: ")
        if begin >= 0:
            return line[begin + len("ECLUSE: "):].split(" SQLSTATE", 1)[0]
    return None


def main():
    parser = argparse.ArgumentParser(description="sorts and merges the lists of an index")
    beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), "inputs.txt")
    parser.add_argument("--inputs", default=beside, metavar="FILE", help="the list of inputs (default: inputs.txt beside this file)")
    parser.add_argument("--parts", type=int, metavar="N", help="into so many files (default: one for 128 MiB)")
    parser.add_argument("output", metavar="OUTPUT", help="a directory that is not there yet")
    options = parser.parse_args()
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.appName("ecluse sort")
        # The parts are the ranges: none is put together with another, and none is cut.
        .config("spark.sql.adaptive.enabled", "false")
        .config("spark.sql.files.maxRecordsPerFile", "0")
        .getOrCreate()
    )
    try:
        sort(spark, read_list(options.inputs), located(options.output), options.parts)
    except BadInput as error:
        print(f"sort.py: {error}", file=sys.stderr)
        return 65
    except Exception as error:
        said = said_by(error)
        if said is None:
            raise
        print(f"sort.py: {said}", file=sys.stderr)
        return 65
    finally:
        spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
