//! How the servers are: each is asked by itself, the queues for their leaders and copies, the store for a small object.
//!
//! It asks for little and never long: whoever looks at a broken cluster wants to know what is broken.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use ecluse_spool::{
    ClusterTrouble, ClusterView, QueueView, Result, ServerState, ServerView, StoreView,
};
use futures_util::future::join_all;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::cluster::{Inner, dice};
use crate::queue::QueueStanding;

/// How long a server may take to say its name, and the queues their leaders.
const GREETING: Duration = Duration::from_secs(3);
const LEADERS: Duration = Duration::from_secs(5);
/// How long the store may take, with the tries that its client makes.
const STORE: Duration = Duration::from_secs(20);
/// What a store says of a request that was signed at another time than its own.
pub(crate) const SKEWED: &str = "RequestTimeTooSkewed";
/// The port of NATS.
const PORT: u16 = 4222;

/// What servers and queues said.
#[derive(Default)]
struct Said {
    /// The servers of the settings: address, and name or why there is none.
    greetings: Vec<(String, std::result::Result<String, String>)>,
    /// The queues: stage, and how it stands.
    queues: Vec<(String, std::result::Result<Option<QueueStanding>, String>)>,
    /// On how many servers each queue shall lie.
    replicas: usize,
}

impl Inner {
    /// Looks at the servers.
    pub(crate) async fn standing(&self, stages: &[String]) -> ClusterView {
        let greetings = join_all(self.queue.servers.iter().map(|server| async move {
            let said = timeout(GREETING, greet(server)).await;
            let said = said.unwrap_or_else(|_| Err("it does not answer".to_owned()));
            (server.clone(), said)
        }));
        let queues = join_all(stages.iter().map(|stage| async move {
            let said = timeout(LEADERS, self.queue.standing(stage)).await;
            let said = said.unwrap_or_else(|_| Err("nobody answers".to_owned()));
            (stage.clone(), said)
        }));
        let (greetings, queues, (store, mut of_store)) =
            tokio::join!(greetings, queues, self.store_standing());
        let mut view = judge(&Said {
            greetings,
            queues,
            replicas: self.queue.replicas(),
        });
        view.store = store;
        view.troubles.append(&mut of_store);
        view
    }

    /// Writes a small object, reads it, and removes it.
    async fn store_standing(&self) -> (StoreView, Vec<ClusterTrouble>) {
        let key = format!("probes/{}-{:016x}", self.host.name, dice());
        let address = self.store.address.clone();
        let (written, write_ms) = timed(self.store.put(&key, b".")).await;
        let (read, read_ms) = timed(self.store.get(&key)).await;
        if written.is_ok() {
            let _ = timeout(STORE, self.store.remove(&key)).await;
        }
        let mut troubles = Vec::new();
        let mut trouble = |what: String, help: &str| {
            troubles.push(ClusterTrouble {
                what,
                help: help.to_owned(),
                hides_stages: true,
            });
        };
        match (&written, &read) {
            (_, Err(why)) if why.contains(SKEWED) => trouble(
                format!(
                    "the store refuses this host because of its clock, and does not say its own: {why}"
                ),
                "set the clock of this host; S3 stores take a quarter of an hour at most",
            ),
            (_, Err(why)) => trouble(
                format!("the store cannot be read: {why}"),
                "mend the store or the way to it; all goes on by itself",
            ),
            (Err(why), Ok(_)) => trouble(
                format!("the store can be read and not written: {why}"),
                "make room in the store, or let it be written again; all goes on by itself",
            ),
            (Ok(()), Ok(_)) => {}
        }
        let slowest = write_ms.max(read_ms);
        if troubles.is_empty() && slowest > ClusterView::SLOW {
            let what = format!(
                "the store at {address} takes {:.1} s for a call",
                slowest.as_secs_f64()
            );
            troubles.push(ClusterTrouble {
                what,
                help: "look at the store's load and the way to it; work goes on, slowly".to_owned(),
                hides_stages: true,
            });
        }
        let ms = |took: Duration| u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        let view = StoreView {
            address,
            read_ms: read.is_ok().then_some(ms(read_ms)),
            write_ms: written.is_ok().then_some(ms(write_ms)),
        };
        (view, troubles)
    }
}

/// Waits for an answer of the store, and says how long it took.
async fn timed<Value>(
    call: impl Future<Output = Result<Value>>,
) -> (std::result::Result<Value, String>, Duration) {
    let began = Instant::now();
    let said = match timeout(STORE, call).await {
        Ok(said) => said.map_err(|error| match std::error::Error::source(&error) {
            Some(cause) => format!("{error}: {cause}"),
            None => error.to_string(),
        }),
        Err(_) => Err(format!("no answer within {} s", STORE.as_secs())),
    };
    (said, began.elapsed())
}

/// Asks a server for its name: it says it to whoever comes.
async fn greet(server: &str) -> std::result::Result<String, String> {
    let address = server.split_once("://").map_or(server, |(_, rest)| rest);
    let address = address.rsplit_once('@').map_or(address, |(_, rest)| rest);
    let address = address.trim_end_matches('/');
    let has_port = address
        .rsplit_once(':')
        .is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let address = match has_port {
        true => address.to_owned(),
        false => format!("{address}:{PORT}"),
    };
    let stream = TcpStream::connect(&address).await;
    let stream = stream.map_err(|error| error.to_string())?;
    let mut line = String::new();
    let read = BufReader::new(stream).read_line(&mut line).await;
    read.map_err(|error| error.to_string())?;
    let about = line.trim().strip_prefix("INFO ").unwrap_or_default();
    let about: serde_json::Value =
        serde_json::from_str(about).map_err(|_| "it is no NATS server".to_owned())?;
    Ok(about["server_name"].as_str().unwrap_or_default().to_owned())
}

/// Makes of what was said what an operator has to know.
fn judge(said: &Said) -> ClusterView {
    let mut view = ClusterView::default();
    let mut leads: BTreeMap<&str, usize> = BTreeMap::new();
    let mut lags: BTreeMap<&str, u64> = BTreeMap::new();
    let (mut known, mut behind, mut away) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    let mut leaderless = Vec::new();
    let mut why_leaderless = String::new();
    let mut others: BTreeMap<usize, Vec<&str>> = BTreeMap::new();
    for (stage, queue) in &said.queues {
        if let Ok(Some(queue)) = queue
            && queue.copies != said.replicas
        {
            others.entry(queue.copies).or_default().push(stage);
        }
        let cluster = match queue {
            Ok(queue) => match queue.as_ref().and_then(|queue| queue.cluster.as_ref()) {
                Some(cluster) => cluster,
                None => continue,
            },
            Err(why) => {
                leaderless.push(stage.as_str());
                why_leaderless.clone_from(why);
                view.queues.push(QueueView {
                    stage: stage.clone(),
                    leader: None,
                    behind: Vec::new(),
                });
                continue;
            }
        };
        match &cluster.leader {
            Some(leader) => {
                known.insert(leader.as_str());
                *leads.entry(leader).or_default() += 1;
            }
            None => leaderless.push(stage),
        }
        let mut of_queue = Vec::new();
        for copy in &cluster.replicas {
            known.insert(&copy.name);
            *lags.entry(&copy.name).or_default() += copy.lag.unwrap_or(0);
            if copy.offline {
                away.insert(copy.name.as_str());
            }
            if copy.offline || !copy.current {
                behind.insert(copy.name.as_str());
                of_queue.push(copy.name.clone());
            }
        }
        view.queues.push(QueueView {
            stage: stage.clone(),
            leader: cluster.leader.clone(),
            behind: of_queue,
        });
    }
    let named = |name: &&&str| {
        said.greetings
            .iter()
            .any(|(_, said)| said.as_deref() == Ok(**name))
    };
    let mut nameless: Vec<&str> = known.iter().filter(|name| !named(name)).copied().collect();
    let silent = said
        .greetings
        .iter()
        .filter(|(_, said)| said.is_err())
        .count();
    for (address, greeting) in &said.greetings {
        let name = match greeting {
            Ok(name) => name.as_str(),
            // One that does not say its name is the one that nobody named.
            Err(_) if silent == 1 && nameless.len() == 1 => nameless.remove(0),
            Err(_) => "",
        };
        let state = match greeting {
            Err(_) => ServerState::CutOff,
            Ok(name) if away.contains(name.as_str()) => ServerState::CutOff,
            Ok(name) if behind.contains(name.as_str()) => ServerState::Behind,
            Ok(_) => ServerState::Ok,
        };
        if let Err(why) = greeting {
            let called = match name {
                "" => address.clone(),
                name => format!("{name} ({address})"),
            };
            view.troubles.push(ClusterTrouble {
                what: format!("the server {called} is cut off from here: {why}"),
                help: "start it, or mend the way to it; the others have copies of its queues"
                    .into(),
                hides_stages: false,
            });
        } else if state == ServerState::CutOff {
            view.troubles.push(ClusterTrouble {
                what: format!("the server {name} ({address}) is cut off from the other servers"),
                help: "mend the way between them; the others have copies of its queues".into(),
                hides_stages: false,
            });
        }
        view.servers
            .push(server(name, address, state, &leads, &lags));
    }
    // Those that the settings do not name, or that could not be told apart.
    for name in nameless {
        let state = match (away.contains(name), behind.contains(name)) {
            (true, _) => ServerState::CutOff,
            (false, true) => ServerState::Behind,
            (false, false) => ServerState::Ok,
        };
        if state == ServerState::CutOff {
            view.troubles.push(ClusterTrouble {
                what: format!("the server {name} is cut off from the other servers"),
                help: "start it, or mend the way to it; the others have copies of its queues"
                    .into(),
                hides_stages: false,
            });
        }
        view.servers.push(server(name, "", state, &leads, &lags));
    }
    for (copies, stages) in others {
        let servers = if copies == 1 { "server" } else { "servers" };
        view.troubles.push(ClusterTrouble {
            what: format!(
                "the queues of {} lie on {copies} {servers}, and 'engine.replicas' is {}",
                stages.join(", "),
                said.replicas
            ),
            help: "restart these stages, or run `ecluse reconcile`: the queues become as the settings say, or the log tells why not"
                .into(),
            hides_stages: false,
        });
    }
    if !leaderless.is_empty() {
        let answer = said.greetings.len() - silent;
        let why = match why_leaderless.as_str() {
            "" => String::new(),
            why => format!(" ({why})"),
        };
        view.troubles.push(ClusterTrouble {
            what: format!(
                "the queues of {} have no leader: of {} servers {answer} answer from here, and a majority must{why}",
                leaderless.join(", "),
                said.greetings.len(),
            ),
            help: "bring the servers together again; the parcels are safe in the store, and all goes on by itself".into(),
            hides_stages: true,
        });
    }
    view
}

fn server(
    name: &str,
    address: &str,
    state: ServerState,
    leads: &BTreeMap<&str, usize>,
    lags: &BTreeMap<&str, u64>,
) -> ServerView {
    ServerView {
        name: name.to_owned(),
        address: address.to_owned(),
        state,
        leads: leads.get(name).copied().unwrap_or(0),
        lag: lags.get(name).copied().unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a queue says whose servers are these: name, offline, current, lag.
    fn led_by(leader: &str, copies: &[(&str, bool, bool, u64)]) -> QueueStanding {
        let replicas: Vec<_> = copies
            .iter()
            .map(|(name, offline, current, lag)| {
                serde_json::json!({
                    "name": name, "offline": offline, "current": current, "active": 1, "lag": lag,
                })
            })
            .collect();
        let info = serde_json::json!({"name": "c", "leader": leader, "replicas": replicas});
        QueueStanding {
            cluster: Some(serde_json::from_value(info).expect("it is as the servers write it")),
            copies: copies.len() + 1,
        }
    }

    fn greeting(number: usize, is_there: bool) -> (String, std::result::Result<String, String>) {
        let said = match is_there {
            true => Ok(format!("n{number}")),
            false => Err("it does not answer".to_owned()),
        };
        (format!("nats://n{number}.example"), said)
    }

    #[test]
    fn a_server_that_does_not_answer_is_the_one_that_nobody_named() {
        let queue = led_by("n1", &[("n2", false, true, 0), ("n3", true, false, 7)]);
        let view = judge(&Said {
            greetings: vec![greeting(1, true), greeting(2, true), greeting(3, false)],
            queues: vec![("index".into(), Ok(Some(queue)))],
            replicas: 3,
        });
        let third = &view.servers[2];
        assert_eq!(
            (third.name.as_str(), third.state, third.lag),
            ("n3", ServerState::CutOff, 7)
        );
        assert_eq!(view.servers[0].leads, 1);
        assert_eq!(view.servers.len(), 3);
        assert_eq!(view.queues[0].behind, ["n3"]);
        assert_eq!(view.troubles.len(), 1, "{:?}", view.troubles);
        assert!(!view.hides_stages());
    }

    #[test]
    fn one_that_answers_us_and_not_the_others_is_cut_off_too() {
        let queue = led_by("n1", &[("n2", true, false, 2), ("n3", false, false, 1)]);
        let view = judge(&Said {
            greetings: (1..=3).map(|number| greeting(number, true)).collect(),
            queues: vec![("index".into(), Ok(Some(queue)))],
            replicas: 3,
        });
        let states: Vec<ServerState> = view.servers.iter().map(|server| server.state).collect();
        let expected = [ServerState::Ok, ServerState::CutOff, ServerState::Behind];
        assert_eq!(states, expected);
        let [trouble] = view.troubles.as_slice() else {
            panic!("to be behind is no trouble: {:?}", view.troubles);
        };
        assert!(trouble.what.contains("n2") && trouble.what.contains("from the other servers"));
    }

    #[test]
    fn without_a_majority_nobody_leads() {
        let nobody = || Err("nobody answers".to_owned());
        let view = judge(&Said {
            greetings: vec![greeting(1, true), greeting(2, false), greeting(3, false)],
            queues: vec![("index".into(), nobody()), ("merge".into(), nobody())],
            replicas: 3,
        });
        assert!(view.hides_stages());
        let last = view.troubles.last().expect("it is told");
        let told = "the queues of index, merge have no leader: of 3 servers 1 answer from here";
        assert!(last.what.starts_with(told), "{}", last.what);
    }

    #[test]
    fn one_server_without_a_cluster_is_well() {
        let alone = |copies| QueueStanding {
            cluster: None,
            copies,
        };
        let said = |replicas| Said {
            greetings: vec![greeting(1, true)],
            queues: vec![
                ("index".into(), Ok(Some(alone(1)))),
                ("merge".into(), Ok(None)),
            ],
            replicas,
        };
        let view = judge(&said(1));
        assert_eq!(view.servers[0].state, ServerState::Ok);
        assert_eq!((view.troubles, view.queues), (Vec::new(), Vec::new()));
        // Under other settings it is not.
        let view = judge(&said(3));
        let [trouble] = view.troubles.as_slice() else {
            panic!("one queue is otherwise: {:?}", view.troubles);
        };
        assert_eq!(
            trouble.what,
            "the queues of index lie on 1 server, and 'engine.replicas' is 3"
        );
    }
}
