//! The work queues: one JetStream stream for each stage, one message for each parcel that waits there.
//!
//! A message is a hint. It names a ticket and may carry it, to save a read; what counts is the ticket in the store. A
//! message has the subject of its parcel and a stream takes one of each, so telling twice does no harm, and the number of
//! messages is the number of parcels that somebody will be told of.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::consumer::pull;
use async_nats::jetstream::consumer::{AckPolicy, PullConsumer};
use async_nats::jetstream::context::GetStreamErrorKind;
use async_nats::jetstream::message::Acker;
use async_nats::jetstream::stream::{
    ClusterInfo, Config, DiscardPolicy, RetentionPolicy, StorageType, Stream,
};
use async_nats::jetstream::{self, Context};
use async_nats::{Client, ConnectError, ConnectErrorKind, ConnectOptions};
use ecluse_config::EngineSettings;
use ecluse_spool::{Result, SpoolError, digest};
use futures_util::{StreamExt, future};
use serde::{Deserialize, Serialize};

use crate::OpenError;
use crate::refusal::{self, TlsFault, in_one_line};
use crate::ticket::Ticket;

/// The one consumer of each queue, which all workers of its stage share.
const CONSUMER: &str = "workers";
/// A ticket larger than this is read from the store.
const CARRIED: usize = 16 << 10;
/// So many messages may be in hands at once.
const IN_HANDS: i64 = 200_000;
/// How long the servers may take for a connection, and for an answer.
const CONNECT: Duration = Duration::from_secs(5);
const ANSWER: Duration = Duration::from_secs(10);
/// A server that is cut off closes no connection: who does not answer three of these is left for another.
const PING: Duration = Duration::from_secs(5);

/// The queues of all stages.
pub(crate) struct Queue {
    pub(crate) client: Client,
    context: Context,
    prefix: String,
    replicas: usize,
    ack_wait: Duration,
    stages: Mutex<HashMap<String, StageQueue>>,
    /// The servers, for messages.
    pub(crate) address: String,
    /// The same, one by one.
    pub(crate) servers: Vec<String>,
}

#[derive(Clone)]
struct StageQueue {
    stream: Stream,
    consumer: PullConsumer,
    /// Nothing more is to be done to make it as the settings say.
    is_settled: bool,
}

/// How a queue stands.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct QueueStanding {
    /// Who leads it and how its copies are, where there is a cluster.
    pub(crate) cluster: Option<ClusterInfo>,
    /// On how many servers it lies.
    pub(crate) copies: usize,
}

/// What a message says.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Hint {
    /// The name of the ticket.
    pub(crate) name: String,
    /// The tag of the ticket that it carries.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) etag: String,
    /// The ticket, when it is small.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ticket: Option<Ticket>,
}

impl Hint {
    /// Returns a hint that only names a ticket.
    pub(crate) fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            etag: String::new(),
            ticket: None,
        }
    }

    /// Returns a hint that carries a ticket.
    pub(crate) fn of(ticket: &Ticket, etag: &str) -> Self {
        Self {
            name: ticket.name(),
            etag: etag.to_owned(),
            ticket: Some(ticket.clone()),
        }
    }

    fn to_bytes(&self) -> Vec<u8> {
        let bytes = serde_json::to_vec(self).expect("a hint holds only strings and numbers");
        if bytes.len() <= CARRIED {
            return bytes;
        }
        serde_json::to_vec(&Self::named(&self.name)).expect("a name is a string")
    }
}

/// How many messages a stage has.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct QueueDepth {
    /// In the stream: waiting or in hands.
    pub(crate) messages: u64,
    /// In somebody's hands.
    pub(crate) in_hands: u64,
}

impl Queue {
    pub(crate) async fn open(
        settings: &EngineSettings,
        root: &Path,
    ) -> std::result::Result<Self, OpenError> {
        let mut options = ConnectOptions::new()
            .name("ecluse")
            .connection_timeout(CONNECT)
            .ping_interval(PING)
            .request_timeout(Some(ANSWER));
        if !settings.credentials.as_os_str().is_empty() {
            let path = root.join(&settings.credentials);
            options = options.credentials_file(&path).await.map_err(|error| {
                OpenError::new("credentials", format!("{}: {error}", path.display()))
            })?;
        }
        if !settings.servers_ca.as_os_str().is_empty() {
            let path = root.join(&settings.servers_ca);
            refusal::must_hold_authorities("servers-ca", &path)?;
            options = options.add_root_certificates(path);
        }
        if settings
            .servers
            .iter()
            .any(|server| server.starts_with("tls://"))
        {
            options = options.require_tls(true);
        }
        let address = settings.servers.join(",");
        let client = options.connect(&settings.servers).await;
        let client = client.map_err(|error| refused(&error, &address, settings))?;
        let mut context = jetstream::new(client.clone());
        context.set_timeout(ANSWER);
        Ok(Self {
            client,
            context,
            prefix: match settings.prefix.as_str() {
                "" => "ecluse".to_owned(),
                prefix => prefix.to_owned(),
            },
            replicas: settings.replicas as usize,
            ack_wait: settings.ack_wait.0,
            stages: Mutex::default(),
            address,
            servers: settings.servers.clone(),
        })
    }

    /// Returns how long a message may be in hands without a sign.
    pub(crate) fn ack_wait(&self) -> Duration {
        self.ack_wait
    }

    /// Says what the servers lack: JetStream, or as many of them as there shall be copies.
    pub(crate) async fn fault(&self) -> Option<(&'static str, String)> {
        let account = self.context.query_account().await;
        if let Err(error) = account {
            return Some((
                "servers",
                format!(
                    "{} has no JetStream for us: {error}; start the servers with jetstream {{ }}",
                    self.address
                ),
            ));
        }
        let name = format!("{}_check", self.prefix);
        // One that a killed check left says nothing of these settings.
        let _ = self.context.delete_stream(&name).await;
        let made = self.context.create_stream(self.config_of("check")).await;
        let fault = made.err().map(|error| {
            (
                "replicas",
                format!("{} cannot keep a queue on {} servers: {error}; start as many in a cluster, or set fewer", self.address, self.replicas),
            )
        });
        let _ = self.context.delete_stream(name).await;
        fault
    }

    fn config_of(&self, stage: &str) -> Config {
        Config {
            name: format!("{}_{stage}", self.prefix),
            subjects: vec![format!("{}.{stage}.*", self.prefix)],
            retention: RetentionPolicy::WorkQueue,
            storage: StorageType::File,
            discard: DiscardPolicy::New,
            max_messages_per_subject: 1,
            discard_new_per_subject: true,
            num_replicas: self.replicas,
            description: Some("parcels that wait; a copy of what the store knows".to_owned()),
            ..Config::default()
        }
    }

    fn subject(&self, stage: &str, name: &str) -> String {
        format!("{}.{stage}.{}", self.prefix, &digest(name.as_bytes())[..24])
    }

    /// Returns what all messages to a stage are sent to.
    pub(crate) fn subjects(&self, stage: &str) -> String {
        format!("{}.{stage}.*", self.prefix)
    }

    /// Returns the queue of a stage; makes it where there is none.
    async fn of(&self, stage: &str) -> Result<StageQueue> {
        let known = self.lock().get(stage).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        let stream = self
            .context
            .get_or_create_stream(self.config_of(stage))
            .await
            .map_err(|error| self.broken("make the queue of", stage, error))?;
        let consumer = stream
            .get_or_create_consumer(CONSUMER, self.consumer_config())
            .await
            .map_err(|error| self.broken("make the queue of", stage, error))?;
        let queue = StageQueue {
            is_settled: self.is_as_set(&stream, &consumer),
            stream,
            consumer,
        };
        self.lock().insert(stage.to_owned(), queue.clone());
        Ok(queue)
    }

    fn consumer_config(&self) -> pull::Config {
        pull::Config {
            durable_name: Some(CONSUMER.to_owned()),
            ack_policy: AckPolicy::Explicit,
            ack_wait: self.ack_wait,
            max_ack_pending: IN_HANDS,
            max_deliver: -1,
            ..pull::Config::default()
        }
    }

    fn is_as_set(&self, stream: &Stream, consumer: &PullConsumer) -> bool {
        stream.cached_info().config.num_replicas == self.replicas
            && consumer.cached_info().config.ack_wait == self.ack_wait
    }

    /// Makes of a queue that was made under other settings one as they are now. Its messages stay.
    async fn settle(&self, queue: &StageQueue) -> std::result::Result<(), String> {
        let config = &queue.stream.cached_info().config;
        if config.num_replicas != self.replicas {
            let config = Config {
                num_replicas: self.replicas,
                ..config.clone()
            };
            let changed = self.context.update_stream(config).await;
            changed.map_err(|error| error.to_string())?;
        }
        if queue.consumer.cached_info().config.ack_wait != self.ack_wait {
            let changed = queue.stream.update_consumer(self.consumer_config()).await;
            changed.map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, StageQueue>> {
        self.stages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets what is known of a queue: the servers may have lost it.
    fn broken(&self, step: &'static str, stage: &str, error: impl std::fmt::Display) -> SpoolError {
        self.lock().remove(stage);
        SpoolError::Io {
            step,
            path: PathBuf::from(format!("{}/{stage}", self.address)),
            source: io::Error::other(error.to_string()),
        }
    }

    /// Makes the queue of a stage, or finds it made. One that was made under other settings becomes as they are now, where the
    /// servers can do that; work goes on with what it is.
    pub(crate) async fn init(&self, stage: &str) -> Result<()> {
        let mut queue = self.of(stage).await?;
        if queue.is_settled {
            return Ok(());
        }
        let (replicas, ack_wait) = (self.replicas, self.ack_wait);
        match self.settle(&queue).await {
            Ok(()) => tracing::info!(
                stage,
                replicas,
                ?ack_wait,
                "the queue is as the settings say"
            ),
            Err(error) => tracing::warn!(
                %error,
                stage,
                replicas,
                ?ack_wait,
                "the servers do not make the queue as the settings say"
            ),
        }
        queue.is_settled = true;
        self.lock().insert(stage.to_owned(), queue);
        Ok(())
    }

    /// Looks anew whether there is a queue and whether it is as the settings say.
    pub(crate) async fn init_anew(&self, stage: &str) -> Result<()> {
        self.lock().remove(stage);
        self.init(stage).await
    }

    /// Tells whoever works for a stage of a parcel; `false` when they are told of it already.
    pub(crate) async fn tell(&self, stage: &str, hint: &Hint) -> Result<bool> {
        let mut tried = false;
        loop {
            self.of(stage).await?;
            let subject = self.subject(stage, &hint.name);
            let told = match self.context.publish(subject, hint.to_bytes().into()).await {
                Ok(told) => told.await,
                Err(error) => Err(error),
            };
            match told {
                Ok(_) => return Ok(true),
                Err(error) if is_told(&error) => return Ok(false),
                // The servers may have lost the queue: it is made again, once.
                Err(_) if !tried => {
                    self.lock().remove(stage);
                    tried = true;
                }
                Err(error) => return Err(self.broken("tell", stage, error)),
            }
        }
    }

    /// Takes as many messages as there are, no more than so many.
    pub(crate) async fn fetch(&self, stage: &str, most: usize) -> Result<Vec<(Hint, Acker)>> {
        let queue = self.of(stage).await?;
        let mut fetched = Vec::new();
        let mut messages = queue
            .consumer
            .fetch()
            .max_messages(most)
            .messages()
            .await
            .map_err(|error| self.broken("ask", stage, error))?;
        loop {
            // A server that is cut off after it was asked never says that this was all.
            let Ok(next) = tokio::time::timeout(ANSWER, messages.next()).await else {
                tracing::warn!(stage, "a queue did not say that this was all");
                self.lock().remove(stage);
                break;
            };
            let Some(message) = next else { break };
            let message = match message {
                Ok(message) => message,
                Err(error) => {
                    tracing::warn!(%error, stage, "a queue did not say all");
                    self.lock().remove(stage);
                    break;
                }
            };
            let (message, acker) = message.split();
            match serde_json::from_slice::<Hint>(&message.payload) {
                Ok(hint) => fetched.push((hint, acker)),
                Err(error) => {
                    tracing::warn!(%error, stage, "a message that says nothing is dropped");
                    let _ = acker.ack().await;
                }
            }
        }
        Ok(fetched)
    }

    /// Forgets all messages of a stage, whose parcels live elsewhere.
    pub(crate) async fn purge(&self, stage: &str) -> Result<()> {
        let queue = self.of(stage).await?;
        let purged = queue.stream.purge().await;
        purged
            .map(drop)
            .map_err(|error| self.broken("empty", stage, error))
    }

    /// Counts the messages of a stage.
    pub(crate) async fn depth(&self, stage: &str) -> Result<QueueDepth> {
        match self.count(stage).await {
            // The servers may have lost the queue: it is made again, once.
            Err(_) => self.count(stage).await,
            counted => counted,
        }
    }

    async fn count(&self, stage: &str) -> Result<QueueDepth> {
        let queue = self.of(stage).await?;
        let (stream, consumer) =
            future::join(queue.stream.get_info(), queue.consumer.get_info()).await;
        let stream = stream.map_err(|error| self.broken("ask", stage, error))?;
        let consumer = consumer.map_err(|error| self.broken("ask", stage, error))?;
        Ok(QueueDepth {
            messages: stream.state.messages,
            in_hands: consumer.num_ack_pending as u64,
        })
    }

    /// Returns on how many servers each queue shall lie.
    pub(crate) fn replicas(&self) -> usize {
        self.replicas
    }

    /// Asks who leads the queue of a stage and how its copies are; `None` where nobody made the queue yet. It is not made for
    /// this.
    pub(crate) async fn standing(
        &self,
        stage: &str,
    ) -> std::result::Result<Option<QueueStanding>, String> {
        let name = format!("{}_{stage}", self.prefix);
        match self.context.get_stream(name).await {
            Ok(stream) => Ok(Some(QueueStanding {
                cluster: stream.cached_info().cluster.clone(),
                copies: stream.cached_info().config.num_replicas,
            })),
            Err(error) => match error.kind() {
                GetStreamErrorKind::JetStream(why)
                    if why.error_code() == ErrorCode::STREAM_NOT_FOUND =>
                {
                    Ok(None)
                }
                _ => Err(error.to_string()),
            },
        }
    }
}

/// Returns why no server let us in, and which key to look at.
fn refused(error: &ConnectError, address: &str, settings: &EngineSettings) -> OpenError {
    let text = in_one_line(error);
    let what = format!("{address}: {text}");
    let not_let_in = || match settings.credentials.as_os_str().is_empty() {
        true => OpenError::new(
            "credentials",
            format!("{what}; name the file with our credentials, as nsc writes it"),
        ),
        false => OpenError::new(
            "credentials",
            format!(
                "{what}; the servers refuse the user in this file: look whether he is theirs and not expired, and write his file anew"
            ),
        ),
    };
    match error.kind() {
        ConnectErrorKind::ServerParse => OpenError::new(
            "servers",
            format!("{what}; write \"nats://host:4222\" for each"),
        ),
        ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication => not_let_in(),
        // An account that has expired is told of in other words.
        ConnectErrorKind::Io if text.to_ascii_lowercase().contains("authentication") => {
            not_let_in()
        }
        ConnectErrorKind::Dns
        | ConnectErrorKind::TimedOut
        | ConnectErrorKind::Tls
        | ConnectErrorKind::Io
        | ConnectErrorKind::MaxReconnects => match TlsFault::in_words(&text) {
            Some(fault) => fault.of_settings("servers-ca", "servers", &what),
            None if error.kind() == ConnectErrorKind::Tls => OpenError::new(
                "servers-ca",
                format!("{what}; name a file with who vouches for their certificates"),
            ),
            None => OpenError::away("servers", format!("cannot reach {what}")),
        },
    }
}

/// Tells whether a message was refused because there is one of that parcel.
fn is_told(error: &async_nats::jetstream::context::PublishError) -> bool {
    use std::error::Error;
    let mut cause: Option<&dyn Error> = Some(error);
    while let Some(error) = cause {
        if error.to_string().contains("maximum messages per subject") {
            return true;
        }
        cause = error.source();
    }
    false
}

#[cfg(test)]
mod tests;
