//! What each stage may do with the servers that carry the parcels: objects of the store and subjects of the queues, and why.
//!
//! The lines follow from what the engine asks for (`docs/formats/object-store.md`): a stage has its own directory, puts tickets
//! into the stages it sends to, and reads and removes the files of the stages that its parcels come through. Nothing here is
//! written anywhere, and no server is asked.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use ecluse_config::{EngineSettings, Owned, Pipeline, base_of};
use serde_json::{Value, json};

/// The maker of files that no stage brought.
const GIVEN: &str = "given";
/// The stages that put parcels before themselves: what they find outside is `given`.
const FINDERS: [&str; 6] = ["clean", "deposit", "ingest", "package", "plan", "preload"];
/// The stages that give each parcel to the one of several that has the fewest: they look into the queues of others.
const SPREADERS: [&str; 2] = ["ingest", "plan"];
/// Bigmerge gives the ranges out and asks how they stand, though they are not its `next`.
const RANGES: (&str, &str) = ("bigmerge", "range");

/// What may be done with objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ObjectAct {
    List,
    Read,
    Write,
    Remove,
}

impl ObjectAct {
    const ALL: [ObjectAct; 4] = [Self::List, Self::Read, Self::Write, Self::Remove];

    fn word(self) -> &'static str {
        match self {
            Self::List => "list",
            Self::Read => "read",
            Self::Write => "write",
            Self::Remove => "remove",
        }
    }

    /// What the store calls it.
    fn actions(self) -> &'static [&'static str] {
        match self {
            Self::List => &["s3:ListBucket"],
            Self::Read => &["s3:GetObject"],
            Self::Write => &["s3:PutObject", "s3:AbortMultipartUpload"],
            Self::Remove => &["s3:DeleteObject"],
        }
    }
}

/// A right over objects, with its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ObjectLine {
    /// Below the prefix of the archive; `*` at the end stands for anything.
    keys: String,
    acts: Vec<ObjectAct>,
    why: &'static str,
}

/// A right over subjects of the queues, with its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SubjectLine {
    subject: String,
    is_heard: bool,
    why: &'static str,
}

/// What one user of the servers may do: a stage, or the operator.
#[derive(Clone, Debug)]
pub(crate) struct UserRights {
    pub(crate) user: String,
    objects: Vec<ObjectLine>,
    subjects: Vec<SubjectLine>,
}

/// Returns the rights of these stages and of the operator.
pub(crate) fn rights_of(pipeline: &Pipeline, stages: &[&str]) -> Vec<UserRights> {
    let queues = match pipeline.engine.prefix.as_str() {
        "" => "ecluse",
        prefix => prefix,
    };
    let mut all: Vec<UserRights> = stages
        .iter()
        .map(|stage| rights_of_stage(pipeline, stage, queues))
        .collect();
    all.push(rights_of_operator(queues));
    all
}

/// The stages that a stage puts parcels into.
fn sends_to(pipeline: &Pipeline, stage: &str) -> Vec<String> {
    let next = pipeline.next_of(stage).into_iter();
    let back = pipeline.back_of(stage).iter().map(String::as_str);
    let mut to: Vec<String> = next.chain(back).map(str::to_owned).collect();
    if base_of(stage) == RANGES.0 && pipeline.stage_names().contains(&RANGES.1) {
        to.push(RANGES.1.to_owned());
    }
    to.sort();
    to.dedup();
    to
}

/// The stages that parcels of a stage may have come through, without itself.
fn comes_through(pipeline: &Pipeline, stage: &str) -> BTreeSet<String> {
    let names = pipeline.stage_names();
    let mut found: BTreeSet<String> = BTreeSet::new();
    let mut looked_at = vec![stage.to_owned()];
    while let Some(at) = looked_at.pop() {
        let senders = names
            .iter()
            .filter(|sender| sends_to(pipeline, sender).contains(&at));
        for sender in senders {
            if found.insert((*sender).to_owned()) {
                looked_at.push((*sender).to_owned());
            }
        }
    }
    found.remove(stage);
    found
}

fn rights_of_stage(pipeline: &Pipeline, stage: &str, queues: &str) -> UserRights {
    use ObjectAct::{List, Read, Remove, Write};
    let mut objects = Vec::new();
    let mut line = |keys: String, acts: &[ObjectAct], why| {
        objects.push(ObjectLine {
            keys,
            acts: acts.to_vec(),
            why,
        });
    };
    let of = |part: &str| format!("stages/{stage}/{part}");
    line(
        of("*"),
        &[List],
        "its tickets, marks, workers and receipts are counted and found",
    );
    for part in ["in/*", "held/*", "discarded/*", "deferred/*"] {
        let why = "it claims, defers, holds and retires its own parcels";
        line(of(part), &[Read, Write, Remove], why);
    }
    line(
        of("sheets/*"),
        &[Read, Write, Remove],
        "what it hands over, until it has",
    );
    line(
        of("workers/*"),
        &[Read, Write, Remove],
        "its workers show that they live, and those of dead hosts are forgotten",
    );
    line(
        of("receipts/*"),
        &[Read, Write],
        "it commits; receipts are never removed",
    );
    let is_deposit = base_of(stage) == "deposit";
    let (acts, why): (&[ObjectAct], _) = match is_deposit {
        true => (
            &[Read, Write],
            "is it paused; it pauses itself when packages are refused",
        ),
        false => (&[Read], "is it paused"),
    };
    line(of("paused.json"), acts, why);
    for to in sends_to(pipeline, stage) {
        let at = |part: &str| format!("stages/{to}/{part}");
        line(
            at("in/*"),
            &[Read, Write],
            "it puts tickets there, and looks whose lies there when one does",
        );
        line(
            at("receipts/*"),
            &[Read],
            "what that stage has finished is not put there again after a crash",
        );
        line(
            at("gone/*"),
            &[Read],
            "nor is what was carried away from there",
        );
        if SPREADERS.contains(&base_of(stage)) {
            line(
                at("*"),
                &[List],
                "it gives each parcel to the one with the fewest waiting",
            );
            line(at("paused.json"), &[Read], "the same");
        }
        if (base_of(stage), base_of(&to)) == RANGES {
            line(
                at("*"),
                &[List],
                "it asks how the ranges stand, and who builds them",
            );
            line(at("workers/*"), &[Read], "the same");
        }
    }
    line(
        format!("payloads/{stage}/*"),
        &[Read, Write, Remove],
        "the files it makes",
    );
    let before = comes_through(pipeline, stage);
    for maker in &before {
        line(
            format!("payloads/{maker}/*"),
            &[Read, Remove],
            "its parcels have files of this stage; they go with the parcel that it consumes",
        );
        line(
            format!("stages/{maker}/receipts/*"),
            &[Read],
            "what this stage told of a parcel",
        );
    }
    let has_news = FINDERS.contains(&base_of(stage)) || base_of(stage) == RANGES.0;
    let acts: &[ObjectAct] = match has_news {
        true => &[Read, Write, Remove],
        false => &[Read, Remove],
    };
    line(
        format!("payloads/{GIVEN}/*"),
        acts,
        "files that came from outside, by hand or found by a stage",
    );
    if base_of(stage) == "package" {
        line("stages/*".to_owned(), &[List], "which stages have receipts");
        line(
            "stages/*/receipts/*".to_owned(),
            &[Read],
            "a package tells what happened to each file",
        );
    }
    if let Some(owned) = Owned::by_stage(stage) {
        line(
            format!("owners/{owned}"),
            &[Read, Write],
            "its host owns this, or stands by",
        );
    }
    line("clocks/*".to_owned(), &[Read, Write], "the store's clock");
    line(
        "probes/*".to_owned(),
        &[Write, Remove],
        "whether the store takes something, after it did not",
    );
    let subjects = subjects_of(pipeline, stage, queues);
    UserRights {
        user: stage.to_owned(),
        objects,
        subjects,
    }
}

fn subjects_of(pipeline: &Pipeline, stage: &str, queues: &str) -> Vec<SubjectLine> {
    let mut subjects = Vec::new();
    let mut line = |is_heard: bool, subject: String, why| {
        subjects.push(SubjectLine {
            subject,
            is_heard,
            why,
        });
    };
    let mut queue = |of: &str, is_own: bool| {
        let stream = format!("{queues}_{of}");
        let why = match is_own {
            true => "its own queue: made where there is none, and counted",
            false => "a queue it sends to: made where there is none, and counted",
        };
        for ask in [
            format!("STREAM.INFO.{stream}"),
            format!("STREAM.CREATE.{stream}"),
            format!("CONSUMER.INFO.{stream}.workers"),
            format!("CONSUMER.CREATE.{stream}.workers"),
        ] {
            line(false, format!("$JS.API.{ask}"), why);
        }
        let why = match is_own {
            true => "it tells itself of parcels that go on",
            false => "it tells of the parcels it sends",
        };
        line(false, format!("{queues}.{of}.*"), why);
        if is_own {
            line(
                false,
                format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.workers"),
                "it asks for parcels",
            );
            line(
                false,
                format!("$JS.ACK.{stream}.workers.>"),
                "it answers for them",
            );
            line(true, format!("{queues}.{of}.*"), "the bell");
        }
    };
    queue(stage, true);
    for to in sends_to(pipeline, stage) {
        queue(&to, false);
    }
    line(true, "_INBOX.>".to_owned(), "answers");
    subjects
}

fn rights_of_operator(queues: &str) -> UserRights {
    let subject = |is_heard: bool, subject: String, why| SubjectLine {
        subject,
        is_heard,
        why,
    };
    UserRights {
        user: EngineSettings::OPERATOR.to_owned(),
        objects: vec![ObjectLine {
            keys: "*".to_owned(),
            acts: ObjectAct::ALL.to_vec(),
            why: "the command ecluse: status, hold, release, pause, collecting",
        }],
        subjects: vec![
            subject(false, "$JS.API.>".to_owned(), "all queues"),
            subject(false, "$JS.ACK.>".to_owned(), "all parcels"),
            subject(false, format!("{queues}.>"), "it tells of parcels"),
            subject(true, format!("{queues}.>"), "the bell"),
            subject(true, "_INBOX.>".to_owned(), "answers"),
        ],
    }
}

impl UserRights {
    /// The keys of the lines with this act, each once.
    fn keys(&self, act: ObjectAct) -> Vec<&str> {
        let lines = self.objects.iter().filter(|line| line.acts.contains(&act));
        let keys: BTreeSet<&str> = lines.map(|line| line.keys.as_str()).collect();
        keys.into_iter().collect()
    }

    /// The policy of this user as AWS, Ceph and SeaweedFS take it.
    pub(crate) fn policy(&self, engine: &EngineSettings) -> Value {
        let bucket = format!("arn:aws:s3:::{}", engine.bucket);
        let prefix = match engine.prefix.as_str() {
            "" => String::new(),
            prefix => format!("{prefix}/"),
        };
        let of_keys = |act: ObjectAct| {
            let keys = self.keys(act).into_iter();
            let resources = keys.map(|key| format!("{bucket}/{prefix}{key}"));
            json!({
                "Sid": act.word(),
                "Effect": "Allow",
                "Action": act.actions(),
                "Resource": resources.collect::<Vec<String>>(),
            })
        };
        let listed = self.keys(ObjectAct::List).into_iter();
        let listed: Vec<String> = listed.map(|key| format!("{prefix}{key}")).collect();
        let list = |sid: &str, condition: Value| {
            json!({
                "Sid": sid,
                "Effect": "Allow",
                "Action": ObjectAct::List.actions(),
                "Resource": [&bucket],
                "Condition": condition,
            })
        };
        json!({
            "Version": "2012-10-17",
            "Statement": [
                list("list", json!({ "StringLike": { "s3:prefix": listed } })),
                // Without it AWS and Ceph say of a missing object that it is forbidden.
                list("missing", json!({ "Null": { "s3:prefix": "true" } })),
                of_keys(ObjectAct::Read),
                of_keys(ObjectAct::Write),
                of_keys(ObjectAct::Remove),
            ],
        })
    }

    fn allowed(&self, is_heard: bool) -> Vec<&str> {
        let lines = self.subjects.iter();
        let lines = lines.filter(|line| line.is_heard == is_heard);
        lines.map(|line| line.subject.as_str()).collect()
    }
}

/// The users with their permissions, in the words of nats-server's configuration, which takes JSON.
pub(crate) fn nats_users(users: &[UserRights]) -> String {
    let users: Vec<Value> = users
        .iter()
        .map(|user| {
            json!({
                "user": user_name(&user.user),
                "permissions": {
                    "publish": { "allow": user.allowed(false) },
                    "subscribe": { "allow": user.allowed(true) },
                },
            })
        })
        .collect();
    format!(
        "# Who may publish and hear what. Written by `ecluse units --rights`; include it in the account of the archive.\n\
         users: {:#}\n",
        Value::from(users)
    )
}

/// The same for a server with an operator, whose users nsc makes, each with its file of credentials.
pub(crate) fn nsc_script(users: &[UserRights]) -> String {
    let mut text = "#!/bin/sh\n\
                    # Makes a user of NATS for each stage, and its file of credentials below the current directory.\n\
                    # Written by `ecluse units --rights`. ACCOUNT is the account of the archive.\n\
                    set -eu\n\
                    : \"${ACCOUNT:?say which account}\"\n"
        .to_owned();
    for user in users {
        let (name, own) = (user_name(&user.user), &user.user);
        let (told, heard) = (user.allowed(false).join(","), user.allowed(true).join(","));
        write!(
            text,
            "nsc add user --account \"$ACCOUNT\" --name '{name}' \\\n  --allow-pub '{told}' \\\n  --allow-sub '{heard}'\n\
             mkdir -p '{own}'\n\
             nsc generate creds --account \"$ACCOUNT\" --name '{name}' > '{own}/nats.creds'\n"
        )
        .expect("a string takes what is written");
    }
    text
}

/// What a user is called on the servers.
fn user_name(user: &str) -> String {
    format!("ecluse-{}", user.replace('@', "-"))
}

/// The identities for SeaweedFS: each with its policy, and with the keys to be filled in.
pub(crate) fn seaweed_identities(users: &[UserRights], engine: &EngineSettings) -> Value {
    let identity = |user: &UserRights| {
        let name = user_name(&user.user);
        let key = json!({ "accessKey": name, "secretKey": "" });
        json!({ "name": name, "credentials": [key], "policyNames": [name] })
    };
    let policy = |user: &UserRights| {
        let content = user.policy(engine).to_string();
        json!({ "name": user_name(&user.user), "content": content })
    };
    json!({
        "identities": users.iter().map(identity).collect::<Vec<Value>>(),
        "policies": users.iter().map(policy).collect::<Vec<Value>>(),
    })
}

/// Says of each line why it is there.
pub(crate) fn reasons(users: &[UserRights]) -> String {
    let mut text = "What each stage may do with the store and with the queues, and why.\n\
                    Written by `ecluse units --rights`; keys are below the prefix of the archive.\n"
        .to_owned();
    for user in users {
        let mut lines: BTreeMap<(&str, String), &str> = BTreeMap::new();
        for line in &user.objects {
            let words: Vec<&str> = line.acts.iter().map(|act| act.word()).collect();
            lines.insert((&line.keys, words.join(" ")), line.why);
        }
        writeln!(text, "\n{}", user.user).expect("a string takes what is written");
        for ((keys, acts), why) in lines {
            writeln!(text, "  {keys:<32} {acts:<18} {why}")
                .expect("a string takes what is written");
        }
        for line in &user.subjects {
            let act = if line.is_heard { "hear" } else { "publish" };
            writeln!(text, "  {:<52} {act:<8} {}", line.subject, line.why)
                .expect("a string takes what is written");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What IAM takes for a managed policy, without white space.
    const LONGEST_POLICY: usize = 6_144;

    fn shipped() -> (Pipeline, Vec<UserRights>) {
        let settings = "[engine]\nkind = \"jetstream\"\nservers = [\"nats://192.0.2.1\"]\nendpoint = \"https://192.0.2.9\"\n\
                        bucket = \"a-bucket-with-quite-a-long-name\"\nprefix = \"an-archive\"\nkey-file = \"k\"\nsecret-file = \"s\"\n";
        let pipeline = Pipeline::parse(settings, "pipeline.toml").unwrap();
        let users = rights_of(&pipeline, &pipeline.stage_names());
        (pipeline, users)
    }

    fn keys(users: &[UserRights], user: &str, act: ObjectAct) -> Vec<String> {
        let user = users.iter().find(|known| known.user == user).unwrap();
        user.keys(act).into_iter().map(str::to_owned).collect()
    }

    #[test]
    fn as_shipped_every_policy_fits_and_nobody_but_the_operator_has_all() {
        let (pipeline, users) = shipped();
        for user in &users {
            let policy = user.policy(&pipeline.engine).to_string();
            assert!(
                policy.len() <= LONGEST_POLICY,
                "{}: {}",
                user.user,
                policy.len()
            );
            let has_all = user.keys(ObjectAct::Remove).contains(&"*");
            assert_eq!(has_all, user.user == EngineSettings::OPERATOR);
            let own = user.allowed(false).contains(&"$JS.API.>");
            assert_eq!(own, user.user == EngineSettings::OPERATOR);
        }
    }

    #[test]
    fn receipts_are_never_removed_and_owned_things_only_by_those_who_own_them() {
        let (_, users) = shipped();
        for user in users
            .iter()
            .filter(|user| user.user != EngineSettings::OPERATOR)
        {
            let removed = user.keys(ObjectAct::Remove);
            assert!(
                removed.iter().all(|key| !key.contains("receipts")),
                "{removed:?}"
            );
            let written = user.keys(ObjectAct::Write);
            let owned: Vec<&&str> = written
                .iter()
                .filter(|key| key.starts_with("owners/"))
                .collect();
            let expected = Owned::by_stage(&user.user).map(|owned| format!("owners/{owned}"));
            assert_eq!(owned.first().map(|key| (**key).to_owned()), expected);
        }
    }

    #[test]
    fn loops_and_ranges_are_followed() {
        let (_, users) = shipped();
        // The results of jobs go back to plan, and days to rank; their files go with them.
        assert!(keys(&users, "plan", ObjectAct::Remove).contains(&"payloads/crawl/*".to_owned()));
        assert!(keys(&users, "merge", ObjectAct::Write).contains(&"stages/rank/in/*".to_owned()));
        assert!(
            keys(&users, "bigmerge", ObjectAct::Write).contains(&"stages/range/in/*".to_owned())
        );
        assert!(keys(&users, "range", ObjectAct::Read).contains(&"payloads/given/*".to_owned()));
        let deposit = keys(&users, "deposit", ObjectAct::Write);
        assert!(deposit.contains(&"stages/deposit/paused.json".to_owned()));
        assert!(!deposit.contains(&"stages/clean/in/*".to_owned()));
    }
}
