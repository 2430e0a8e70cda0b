//! PostgreSQL as a queue, beside which ours are set.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// Moves rows through three states with SKIP LOCKED, 100 a transaction, two clients, synchronous
/// commit; returns rows a second, `NaN` where there is no PostgreSQL.
pub(crate) fn skip_locked(dir: &Path, rows: usize) -> f64 {
    let Some(bin) = programs() else {
        println!("PostgreSQL is missing: apt-get install postgresql");
        return f64::NAN;
    };
    fs::create_dir_all(dir).unwrap();
    let as_postgres = is_root();
    if as_postgres {
        run(Command::new("chown").arg("postgres").arg(dir));
        for ancestor in dir.ancestors().skip(1) {
            // The server's user must be able to walk to its data.
            let _ = Command::new("chmod").arg("o+x").arg(ancestor).status();
        }
    }
    let pg = |program: &str| {
        let path = bin.join(program);
        if as_postgres {
            let mut command = Command::new("runuser");
            command.args(["-u", "postgres", "--"]).arg(path);
            command
        } else {
            Command::new(path)
        }
    };
    let data = dir.join("data");
    run(pg("initdb")
        .args(["-A", "trust", "-U", "bench", "-D"])
        .arg(&data));
    let socket = format!(
        "-k {} -c listen_addresses='' -c shared_buffers=256MB",
        dir.display()
    );
    run(pg("pg_ctl")
        .args(["-w", "-o", &socket, "-l"])
        .arg(dir.join("log"))
        .arg("-D")
        .arg(&data)
        .arg("start"));
    let psql = |sql: &str| {
        run(pg("psql")
            .args(["-q", "-U", "bench", "-d", "postgres", "-h"])
            .arg(dir)
            .args(["-c", sql]));
    };
    psql("create table jobs (id bigserial primary key, state int not null, payload text not null)");
    psql(&format!(
        "insert into jobs (state, payload) select 0, repeat('d', 200) from generate_series(1, {rows})"
    ));
    psql("create index on jobs (state, id)");
    psql("vacuum analyze jobs");
    psql("checkpoint");
    let script = dir.join("move.sql");
    let step = |from: i32| {
        format!(
            "update jobs set state = {} where id in (select id from jobs where state = {from} order by id limit 100 for update skip locked) returning payload;\n",
            from + 1
        )
    };
    fs::write(&script, step(0) + &step(1) + &step(2)).unwrap();
    // Two clients, so each has half of the rows to move; a statement is a transaction of its own.
    let turns = rows.div_ceil(200).to_string();
    let began = Instant::now();
    run(pg("pgbench")
        .args([
            "-n", "-c", "2", "-j", "2", "-t", &turns, "-U", "bench", "-h",
        ])
        .arg(dir)
        .arg("-f")
        .arg(&script)
        .arg("postgres"));
    let took = began.elapsed().as_secs_f64();
    let done = pg("psql")
        .args(["-qAt", "-U", "bench", "-d", "postgres", "-h"])
        .arg(dir)
        .args(["-c", "select count(*) from jobs where state = 3"])
        .output()
        .unwrap();
    let done: f64 = String::from_utf8(done.stdout)
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    assert!(done >= rows as f64 * 0.9, "{done} of {rows} rows arrived");
    run(pg("pg_ctl")
        .args(["-m", "fast", "-D"])
        .arg(&data)
        .arg("stop"));
    done / took
}

/// Returns where its programs are.
pub(crate) fn programs() -> Option<PathBuf> {
    let mut versions: Vec<PathBuf> = fs::read_dir("/usr/lib/postgresql")
        .ok()?
        .map(|entry| entry.unwrap().path().join("bin"))
        .filter(|bin| bin.join("initdb").exists())
        .collect();
    versions.sort();
    versions.pop()
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn run(command: &mut Command) {
    let output = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let output = output.spawn().unwrap().wait_with_output().unwrap();
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}
