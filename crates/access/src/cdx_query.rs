//! The CDX API: what is asked, with the names of pywb and of the Internet Archive, and the answer.
//!
//! Every answer is bounded twice: by the lines of the index that are read for it, and by its own bytes. An answer that ends at
//! such a bound says where to go on; see `docs/access.md`.

use std::borrow::Cow;
use std::collections::VecDeque;

use ecluse_cdx::{Capture, CaptureTime, Extra, KeyRange, LookupError, cdxj};
use regex::{Regex, RegexBuilder};
use serde_json::Value;

use crate::archive::OpenGeneration;
use crate::capture_list::moment_of;
use crate::moment::Moment;
use crate::query_string::Parameters;
use crate::url_text::{encode_component, key_of, with_scheme};

/// How large a pattern may be when it is compiled.
const PATTERN_BYTES: usize = 1 << 20;
/// More filters are not applied to one question.
const FILTERS: usize = 16;

/// The bounds of one answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CdxLimits {
    /// Lines of the index that are read.
    pub(crate) scan_lines: u64,
    /// Bytes of the answer.
    pub(crate) answer_bytes: usize,
    /// Lines on a page.
    pub(crate) page_lines: u64,
}

/// How lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CdxOutput {
    Cdxj,
    Json,
    Text,
    Link,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LineOrder {
    Index,
    Reverse,
    Closest(Moment),
}

/// A question to the CDX API.
#[derive(Debug)]
pub(crate) struct CdxQuery {
    pub(crate) range: KeyRange,
    pub(crate) output: CdxOutput,
    fields: Option<Vec<String>>,
    from: Option<Moment>,
    to: Option<Moment>,
    filters: Vec<LineFilter>,
    collapse: Vec<Collapse>,
    order: LineOrder,
    /// Negative: so many from the end.
    limit: Option<i64>,
    offset: u64,
    page: Option<u64>,
    page_size: u64,
    pub(crate) shows_page_count: bool,
    pub(crate) shows_resume_key: bool,
    /// How many lines of the first key and time were given already.
    given: u64,
    /// Where records lie is left out.
    hides_places: bool,
}

/// The fields that say where a record lies.
const PLACES: [&str; 3] = ["length", "offset", "filename"];

#[derive(Debug)]
struct LineFilter {
    is_inverted: bool,
    /// Empty: the whole line.
    field: String,
    test: FilterTest,
}

#[derive(Debug)]
enum FilterTest {
    Equal(String),
    Contains(String),
    Matches(Regex),
}

/// Lines next to each other that agree in this count as one.
#[derive(Debug)]
struct Collapse {
    fields: Vec<&'static str>,
    name: String,
    length: usize,
}

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct CdxAnswer {
    pub(crate) body: Vec<u8>,
    pub(crate) lines: u64,
    /// Where the next question goes on, if there is more.
    pub(crate) resume: Option<String>,
    /// A bound was reached before the end.
    pub(crate) is_cut: bool,
}

impl CdxQuery {
    /// Leaves out where records lie, for readers who may not have them as they were archived; names the field by which they
    /// were asked for.
    pub(crate) fn without_places(mut self) -> Result<Self, String> {
        let names = self.fields.iter().flatten();
        let filters = self.filters.iter().map(|filter| &filter.field);
        let collapses = self.collapse.iter().map(|collapse| &collapse.name);
        for name in names.chain(filters).chain(collapses) {
            // Without a field a filter looks at the whole line.
            if PLACES.contains(&name.as_str()) || name.is_empty() {
                return Err(name.clone());
            }
        }
        self.hides_places = true;
        Ok(self)
    }

    /// Reads the parameters of a question; the text says what is wrong with them.
    pub(crate) fn parse(parameters: &Parameters) -> Result<Self, String> {
        let url = parameters
            .get("url")
            .filter(|url| !url.is_empty())
            .ok_or("The \"url\" param is required")?;
        let mut range = range_of(url, parameters.get("matchType"))?;
        let mut given = 0;
        if let Some(key) = parameters.get("resumeKey").filter(|key| !key.is_empty()) {
            let (from, lines) = resume_point(key).ok_or("resumeKey is none of ours")?;
            // A key of another question could lead out of this one.
            if from >= range.from {
                range.from = from;
                given = lines;
            }
        }
        let fields = parameters.get("fl").or(parameters.get("fields"));
        let fields = fields.filter(|list| !list.is_empty()).map(|list| {
            let names = list.split(',').map(|name| known_field(name.trim()));
            names.map(str::to_owned).collect()
        });
        let moment = |names: &[&str], read: fn(&str) -> Option<Moment>| match names
            .iter()
            .find_map(|name| parameters.get(name))
            .filter(|text| !text.is_empty())
        {
            Some(text) => read(text)
                .map(Some)
                .ok_or_else(|| format!("{}={text} is no time", names[0])),
            None => Ok(None),
        };
        let closest = moment(&["closest"], Moment::first_of)?;
        let sort = parameters.get("sort").unwrap_or_default();
        let order = match (sort, closest) {
            ("closest", None) => return Err("sort=closest needs closest=".into()),
            ("" | "closest", Some(closest)) => LineOrder::Closest(closest),
            ("reverse", _) => LineOrder::Reverse,
            ("" | "regular" | "default", _) => match parameters.is_set("reverse") {
                true => LineOrder::Reverse,
                false => LineOrder::Index,
            },
            (other, _) => return Err(format!("sort={other} not supported")),
        };
        let output = match parameters.get("output").unwrap_or("cdxj") {
            "cdxj" => CdxOutput::Cdxj,
            "json" => CdxOutput::Json,
            "text" => CdxOutput::Text,
            "link" => CdxOutput::Link,
            other => return Err(format!("output={other} not supported")),
        };
        let number = |name: &str| match parameters.get(name).filter(|text| !text.is_empty()) {
            Some(text) => text
                .parse::<i64>()
                .map(Some)
                .map_err(|_| format!("Invalid value for {name}= param: {text}")),
            None => Ok(None),
        };
        let natural = |name: &str| {
            let number = number(name)?;
            let number = number.map(u64::try_from).transpose();
            number.map_err(|_| format!("Invalid value for {name}= param"))
        };
        let filters: Vec<&str> = parameters.all("filter").collect();
        if filters.len() > FILTERS {
            return Err(format!("more than {FILTERS} filters"));
        }
        Ok(Self {
            range,
            output,
            fields,
            from: moment(&["from", "from_ts"], Moment::first_of)?,
            to: moment(&["to", "to_ts"], Moment::last_of)?,
            filters: filters
                .into_iter()
                .map(LineFilter::parse)
                .collect::<Result<_, _>>()?,
            collapse: collapses(parameters)?,
            order,
            limit: number("limit")?,
            offset: natural("offset")?.unwrap_or(0),
            page: natural("page")?,
            page_size: natural("pageSize")?.unwrap_or(1).clamp(1, 100),
            shows_page_count: parameters.is_set("showNumPages"),
            shows_resume_key: parameters.is_set("showResumeKey"),
            given,
            hides_places: false,
        })
    }

    /// Says whether a line can be given as it stands in the index.
    fn is_plain(&self) -> bool {
        self.fields.is_none()
            && self.filters.is_empty()
            && self.collapse.is_empty()
            && self.output == CdxOutput::Cdxj
    }

    fn is_in_time(&self, line: &[u8]) -> bool {
        if self.from.is_none() && self.to.is_none() {
            return true;
        }
        let moment = time_in(line);
        self.from.is_none_or(|from| moment >= from) && self.to.is_none_or(|to| moment <= to)
    }

    /// Counts the pages of the answer.
    ///
    /// # Errors
    /// When the index cannot be read; `Ok(None)` when it has more lines than may be read.
    pub(crate) fn count_pages(
        &self,
        generation: &OpenGeneration,
        limits: &CdxLimits,
        may_see: &dyn Fn(&[u8]) -> bool,
    ) -> Result<Option<u64>, LookupError> {
        let mut found = generation.lines.range(self.range.clone())?;
        let mut lines = 0;
        let mut is_any_seen = false;
        while let Some(line) = found.next_line()? {
            lines += 1;
            if lines > limits.scan_lines {
                return Ok(None);
            }
            is_any_seen = is_any_seen || may_see(line);
        }
        // Pages of lines that nobody may see are no pages.
        let lines = if is_any_seen { lines } else { 0 };
        let of_page = limits.page_lines.saturating_mul(self.page_size).max(1);
        Ok(Some(lines.div_ceil(of_page)))
    }

    /// Answers, without a look at the rules of access: `may_see` has them.
    ///
    /// # Errors
    /// When the index cannot be read.
    pub(crate) fn answer(
        &self,
        generation: &OpenGeneration,
        limits: &CdxLimits,
        may_see: &dyn Fn(&[u8]) -> bool,
        link: &dyn Fn(&Capture<'_>) -> String,
    ) -> Result<CdxAnswer, LookupError> {
        let mut found = generation.lines.range(self.range.clone())?;
        let mut writing = Writing::new(self, limits, link);
        let page = self.page.map(|page| {
            let lines = limits.page_lines.saturating_mul(self.page_size);
            (page.saturating_mul(lines), lines)
        });
        let mut scanned = 0;
        let mut same = SameTime::default();
        let mut to_pass = self.given;
        while let Some(line) = found.next_line()? {
            same.see(line);
            if to_pass > 0 && same.prefix == self.range.from {
                to_pass -= 1;
                continue;
            }
            to_pass = 0;
            if let Some((first, lines)) = page {
                if scanned >= first.saturating_add(lines) {
                    break;
                }
                if scanned < first {
                    scanned += 1;
                    if scanned >= limits.scan_lines {
                        writing.answer.is_cut = true;
                        break;
                    }
                    continue;
                }
            }
            if scanned >= limits.scan_lines || writing.is_full() {
                writing.answer.is_cut = scanned >= limits.scan_lines || writing.is_over();
                writing.answer.resume = Some(same.point(line));
                break;
            }
            scanned += 1;
            if self.is_in_time(line) && may_see(line) {
                writing.take(line);
            }
        }
        Ok(writing.finish())
    }
}

/// How many lines of the same key and time came before.
#[derive(Default)]
struct SameTime {
    prefix: Vec<u8>,
    before: u64,
}

impl SameTime {
    fn see(&mut self, line: &[u8]) {
        let prefix = prefix_of(line);
        if self.prefix == prefix {
            self.before += 1;
        } else {
            self.prefix.clear();
            self.prefix.extend_from_slice(prefix);
            self.before = 0;
        }
    }

    fn point(&self, line: &[u8]) -> String {
        let prefix = String::from_utf8_lossy(prefix_of(line));
        let text = match self.before {
            0 => prefix.into_owned(),
            before => format!("{prefix} {before}"),
        };
        encode_component(&text)
    }
}

/// Returns key and time of a line.
fn prefix_of(line: &[u8]) -> &[u8] {
    let mut blanks = blanks(line);
    let _key = blanks.next();
    let end = blanks.next().unwrap_or(line.len());
    &line[..end]
}

fn blanks(line: &[u8]) -> impl Iterator<Item = usize> + '_ {
    memchr::memchr_iter(b' ', line)
}

fn time_in(line: &[u8]) -> Moment {
    let blank = blanks(line).next().unwrap_or(line.len());
    moment_of(line.get(blank + 1..).unwrap_or_default())
}

/// Reads where to go on, and how many lines of that key and time were given.
fn resume_point(key: &str) -> Option<(Vec<u8>, u64)> {
    let mut words = key.split(' ');
    let (url_key, time) = (words.next()?, words.next()?);
    CaptureTime::from_digits(time.as_bytes())?;
    let given = match words.next() {
        Some(given) => given.parse().ok()?,
        None => 0,
    };
    let is_whole = words.next().is_none() && !url_key.is_empty();
    is_whole.then(|| (format!("{url_key} {time}").into_bytes(), given))
}

/// Returns the lines that a URL and a kind of match ask for, as pywb does.
fn range_of(url: &str, match_type: Option<&str>) -> Result<KeyRange, String> {
    let (url, match_type) = match match_type.filter(|kind| !kind.is_empty()) {
        Some(kind) => (url, kind),
        None => match (url.strip_prefix("*."), url.strip_suffix('*')) {
            (Some(host), _) => (host, "domain"),
            (_, Some(start)) => (start, "prefix"),
            (None, None) => (url, "exact"),
        },
    };
    let with_scheme = with_scheme(url);
    let key = key_of(&with_scheme).ok_or_else(|| format!("no key for {url}"))?;
    Ok(match match_type {
        "exact" => KeyRange::exact(&key),
        "prefix" => KeyRange::prefix(&as_far_as_written(key, url)),
        "host" => KeyRange::host(&key),
        "domain" => KeyRange::domain(&key),
        other => return Err(format!("Invalid match_type: {other}")),
    })
}

/// Returns a key with the slash or question mark that its URL ends with: a key has none there, but whoever writes one asks for
/// what is below and not for the neighbours. pywb reads a prefix in the same way.
pub(crate) fn as_far_as_written(mut key: Vec<u8>, url: &str) -> Vec<u8> {
    if let Some(last @ (b'/' | b'?')) = url.as_bytes().last()
        && key.last() != Some(last)
    {
        key.push(*last);
    }
    key
}

/// Returns our name of a field for that of the Internet Archive, or a letter of CDX.
fn known_field(name: &str) -> &str {
    match name {
        "original" | "u" | "a" => "url",
        "mimetype" | "m" => "mime",
        "statuscode" | "s" => "status",
        "d" => "digest",
        "l" | "S" => "length",
        "o" | "V" => "offset",
        "f" | "g" => "filename",
        "k" | "N" => "urlkey",
        "t" | "b" => "timestamp",
        other => other,
    }
}

impl LineFilter {
    /// Reads `[!][=|~]field:text`. Without a sign pywb looks for the text in the field, and the Internet Archive takes it for a
    /// pattern that the whole field must fit: it is one if it has something that only a pattern has.
    fn parse(text: &str) -> Result<Self, String> {
        let (is_inverted, rest) = match text.strip_prefix('!') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (sign, rest) = match rest.chars().next() {
            Some(sign @ ('=' | '~')) => (Some(sign), &rest[1..]),
            _ => (None, rest),
        };
        let (field, value) = match rest.split_once(':') {
            Some((field, value)) => (known_field(field).to_owned(), value),
            None => (String::new(), rest),
        };
        let pattern = |text: String| {
            RegexBuilder::new(&text)
                .size_limit(PATTERN_BYTES)
                .build()
                .map(FilterTest::Matches)
                .map_err(|_| format!("filter={value} is no pattern"))
        };
        let is_pattern = value.contains(['*', '[', '(', '|', '^', '$', '\\']);
        let test = match sign {
            Some('=') => FilterTest::Equal(value.to_owned()),
            // Python's `match`: from the beginning, to anywhere.
            Some(_) => pattern(format!("^(?:{value})"))?,
            None if is_pattern => pattern(format!("^(?:{value})$"))?,
            None => FilterTest::Contains(value.to_owned()),
        };
        Ok(Self {
            is_inverted,
            field,
            test,
        })
    }

    fn lets_through(&self, capture: &Capture<'_>, line: &str) -> bool {
        let value = match self.field.as_str() {
            "" => Cow::Borrowed(line),
            field => field_text(capture, field).unwrap_or_default(),
        };
        let fits = match &self.test {
            FilterTest::Equal(text) => value == text.as_str(),
            FilterTest::Contains(text) => value.contains(text.as_str()),
            FilterTest::Matches(pattern) => pattern.is_match(&value),
        };
        fits != self.is_inverted
    }
}

fn collapses(parameters: &Parameters) -> Result<Vec<Collapse>, String> {
    let mut collapses = Vec::new();
    for text in parameters.all("collapse").filter(|text| !text.is_empty()) {
        let (name, length) = match text.split_once(':') {
            Some((name, length)) => {
                let length = length.parse();
                (name, length.map_err(|_| format!("collapse={text}"))?)
            }
            None => (text, usize::MAX),
        };
        collapses.push(Collapse {
            fields: Vec::new(),
            name: known_field(name).to_owned(),
            length,
        });
    }
    // pywb's: the same beginning of the time, and the same status.
    if let Some(length) = parameters.get("collapseTime").filter(|l| !l.is_empty()) {
        let length = length.parse();
        collapses.push(Collapse {
            fields: vec!["status"],
            name: "timestamp".to_owned(),
            length: length.map_err(|_| "collapseTime is no number".to_owned())?,
        });
    }
    Ok(collapses)
}

impl Collapse {
    fn token(&self, capture: &Capture<'_>) -> String {
        let value = field_text(capture, &self.name).unwrap_or_default();
        let mut token: String = value.chars().take(self.length).collect();
        for field in &self.fields {
            token.push('\n');
            token.push_str(&field_text(capture, field).unwrap_or_default());
        }
        token
    }
}

/// Returns a field as text; none where the line does not have it.
fn field_text<'c>(capture: &'c Capture<'_>, name: &str) -> Option<Cow<'c, str>> {
    match name {
        "urlkey" => Some(Cow::Borrowed(&*capture.key)),
        "timestamp" => Some(Cow::Borrowed(capture.time.as_str())),
        "url" => capture.url.as_deref().map(Cow::Borrowed),
        "mime" => capture.mime.as_deref().map(Cow::Borrowed),
        "status" => capture.status.as_deref().map(Cow::Borrowed),
        "digest" => capture.digest.as_deref().map(Cow::Borrowed),
        "length" => capture.length_bytes.map(|n| Cow::Owned(n.to_string())),
        "offset" => capture.offset.map(|n| Cow::Owned(n.to_string())),
        "filename" => capture.filename.as_deref().map(Cow::Borrowed),
        other => capture
            .extras
            .iter()
            .find(|(extra, _)| extra == other)
            .map(|(_, value)| match value {
                Extra::Text(text) | Extra::Json(text) => Cow::Borrowed(&**text),
            }),
    }
}

/// An answer being written.
struct Writing<'a> {
    query: &'a CdxQuery,
    limits: &'a CdxLimits,
    link: &'a dyn Fn(&Capture<'_>) -> String,
    answer: CdxAnswer,
    last_tokens: Option<Vec<String>>,
    to_skip: u64,
    /// Lines that are sorted before they are written.
    kept: VecDeque<(u64, Vec<u8>)>,
    kept_bytes: usize,
}

impl<'a> Writing<'a> {
    fn new(
        query: &'a CdxQuery,
        limits: &'a CdxLimits,
        link: &'a dyn Fn(&Capture<'_>) -> String,
    ) -> Self {
        Self {
            query,
            limits,
            link,
            answer: CdxAnswer::default(),
            last_tokens: None,
            to_skip: query.offset,
            kept: VecDeque::new(),
            kept_bytes: 0,
        }
    }

    /// How many lines are wanted.
    fn wanted(&self) -> u64 {
        self.query.limit.map_or(u64::MAX, i64::unsigned_abs)
    }

    /// Says whether lines are kept until all were seen.
    fn keeps(&self) -> bool {
        self.query.order != LineOrder::Index || self.query.limit.is_some_and(|limit| limit < 0)
    }

    fn is_over(&self) -> bool {
        self.answer.body.len() + self.kept_bytes >= self.limits.answer_bytes
    }

    fn is_full(&self) -> bool {
        self.is_over() || (!self.keeps() && self.answer.lines >= self.wanted())
    }

    fn take(&mut self, line: &[u8]) {
        if self.query.is_plain() {
            if self.to_skip > 0 {
                self.to_skip -= 1;
            } else {
                self.put(line);
            }
            return;
        }
        let Ok(capture) = cdxj::parse(line) else {
            return;
        };
        let text = String::from_utf8_lossy(line);
        let filters = &self.query.filters;
        if !filters.iter().all(|f| f.lets_through(&capture, &text)) {
            return;
        }
        if !self.query.collapse.is_empty() {
            let tokens = self.query.collapse.iter().map(|one| one.token(&capture));
            let tokens: Vec<String> = tokens.collect();
            if self.last_tokens.as_ref() == Some(&tokens) {
                return;
            }
            self.last_tokens = Some(tokens);
        }
        if self.to_skip > 0 {
            self.to_skip -= 1;
            return;
        }
        self.put(line);
    }

    fn put(&mut self, line: &[u8]) {
        if !self.keeps() {
            self.write(line);
            return;
        }
        let most = usize::try_from(self.wanted()).unwrap_or(usize::MAX);
        if most == 0 {
            return;
        }
        match self.query.order {
            LineOrder::Closest(wanted) => {
                let distance = time_in(line).seconds().abs_diff(wanted.seconds());
                let at = self.kept.partition_point(|(other, _)| *other <= distance);
                if at >= most {
                    return;
                }
                self.kept.insert(at, (distance, line.to_vec()));
                self.kept_bytes += line.len();
                if self.kept.len() > most
                    && let Some((_, dropped)) = self.kept.pop_back()
                {
                    self.kept_bytes -= dropped.len();
                }
            }
            LineOrder::Index | LineOrder::Reverse => {
                self.kept.push_back((0, line.to_vec()));
                self.kept_bytes += line.len();
                if self.kept.len() > most
                    && let Some((_, dropped)) = self.kept.pop_front()
                {
                    self.kept_bytes -= dropped.len();
                }
            }
        }
    }

    fn finish(mut self) -> CdxAnswer {
        let kept = std::mem::take(&mut self.kept);
        let lines: Box<dyn Iterator<Item = (u64, Vec<u8>)>> = match self.query.order {
            LineOrder::Reverse => Box::new(kept.into_iter().rev()),
            LineOrder::Index | LineOrder::Closest(_) => Box::new(kept.into_iter()),
        };
        for (_, line) in lines {
            self.write(&line);
        }
        if self.query.output == CdxOutput::Link && self.answer.body.ends_with(b",\n") {
            let end = self.answer.body.len() - 2;
            self.answer.body.truncate(end);
            self.answer.body.push(b'\n');
        }
        self.answer
    }

    fn write(&mut self, line: &[u8]) {
        let query = self.query;
        let body = &mut self.answer.body;
        let is_whole = query.fields.is_none() && !query.hides_places;
        if is_whole && query.output == CdxOutput::Cdxj {
            body.extend_from_slice(line);
            body.push(b'\n');
            self.answer.lines += 1;
            return;
        }
        let Ok(capture) = cdxj::parse(line) else {
            return;
        };
        match query.output {
            CdxOutput::Link => {
                body.extend_from_slice((self.link)(&capture).as_bytes());
                body.extend_from_slice(b",\n");
            }
            CdxOutput::Text => {
                let fields: Vec<&str> = match &query.fields {
                    Some(fields) => fields.iter().map(String::as_str).collect(),
                    None => STANDING.to_vec(),
                };
                for (at, field) in fields.into_iter().enumerate() {
                    if at > 0 {
                        body.push(b' ');
                    }
                    let text = match query.hides(field) {
                        true => None,
                        false => field_text(&capture, field),
                    };
                    body.extend_from_slice(text.as_deref().unwrap_or("-").as_bytes());
                }
                body.push(b'\n');
            }
            CdxOutput::Cdxj => {
                body.extend_from_slice(prefix_of(line));
                body.push(b' ');
                write_object(&capture, query, false, body);
            }
            CdxOutput::Json => write_object(&capture, query, true, body),
        }
        self.answer.lines += 1;
    }
}

impl CdxQuery {
    /// Tells whether a field is kept from this reader. What others put into their lines may lead to the record too.
    fn hides(&self, field: &str) -> bool {
        self.hides_places && (PLACES.contains(&field) || !STANDING.contains(&field))
    }
}

/// The fields that every line may have, in order.
const STANDING: [&str; 9] = [
    "urlkey",
    "timestamp",
    "url",
    "mime",
    "status",
    "digest",
    "length",
    "offset",
    "filename",
];

/// Writes the fields of a capture as one JSON object and a line feed, in the order asked for, else in that of the line.
fn write_object(capture: &Capture<'_>, query: &CdxQuery, has_key: bool, body: &mut Vec<u8>) {
    let extras = capture.extras.iter().map(|(name, _)| &**name);
    let all: Vec<&str> = match &query.fields {
        Some(fields) => fields.iter().map(String::as_str).collect(),
        None => STANDING.into_iter().chain(extras).collect(),
    };
    body.push(b'{');
    let mut is_first = true;
    for name in all {
        if !has_key && matches!(name, "urlkey" | "timestamp") {
            continue;
        }
        if query.hides(name) {
            continue;
        }
        let json = capture
            .extras
            .iter()
            .find_map(|(extra, value)| match value {
                Extra::Json(json) if extra == name => Some(json.to_string()),
                Extra::Json(_) | Extra::Text(_) => None,
            });
        let Some(value) = json.or_else(|| {
            // Who asks for a field by its name gets it, as pywb does it.
            let is_named = query.fields.is_some() && STANDING.contains(&name);
            let text = field_text(capture, name).or(is_named.then_some(Cow::Borrowed("-")))?;
            Some(Value::from(&*text).to_string())
        }) else {
            continue;
        };
        if !is_first {
            body.extend_from_slice(b", ");
        }
        is_first = false;
        body.extend_from_slice(Value::from(name).to_string().as_bytes());
        body.extend_from_slice(b": ");
        body.extend_from_slice(value.as_bytes());
    }
    body.extend_from_slice(b"}\n");
}
