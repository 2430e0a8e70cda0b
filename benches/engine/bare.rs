//! The servers alone. JetStream with the settings that our queues have: what nobody who dispatches by it can do without. The store
//! with one object for each parcel and stage: what nobody who keeps a receipt for each can do without.

use async_nats::jetstream::consumer::{AckPolicy, PullConsumer, pull};
use async_nats::jetstream::stream::{Config, DiscardPolicy, RetentionPolicy, StorageType};
use async_nats::jetstream::{self, Context};
use ecluse_config::EngineSettings;
use futures_util::{StreamExt, TryStreamExt, future, stream};
use object_store::aws::{AmazonS3Builder, Checksum};
use object_store::path::Path as Key;
use object_store::{ClientOptions, ObjectStore, PutMode, PutOptions};

use crate::{Clock, END, GROUP, Run, STAGES, WORKERS};

/// A message is as large as ours with a ticket in it.
const BYTES: usize = 600;
/// A receipt of these parcels is as large.
const RECEIPT_BYTES: usize = 620;
/// How many puts are under way at a time, as with our commits.
const PUTS: usize = 16;

/// Moves messages through three streams: fetches a hundred, publishes each to the next, acks each.
pub(crate) fn three_stages(servers: &[String], prefix: &str, messages: usize) -> Run {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let client = async_nats::connect(servers).await.unwrap();
        let context = jetstream::new(client);
        let stages: Vec<String> = STAGES
            .iter()
            .chain([&END])
            .map(|stage| format!("bare_{prefix}_{stage}"))
            .collect();
        let mut consumers = Vec::new();
        for stage in &stages {
            consumers.push(queue(&context, stage).await);
        }
        let all: Vec<String> = (0..messages).map(|number| number.to_string()).collect();
        for group in all.chunks(GROUP) {
            publish(&context, &stages[0], group).await;
        }
        let clock = Clock::start();
        let pumps = (0..WORKERS).map(|_| {
            tokio::spawn(pump(
                context.clone(),
                stages.clone(),
                consumers.clone(),
                messages,
            ))
        });
        future::join_all(pumps).await;
        let run = clock.stop(messages);
        let mut end = context.get_stream(&stages[STAGES.len()]).await.unwrap();
        assert_eq!(end.info().await.unwrap().state.messages, messages as u64);
        for stage in &stages {
            context.delete_stream(stage).await.unwrap();
        }
        run
    })
}

/// Puts objects where there are none, through the client that the engine has, and nothing else: `together` parcels' receipts in each,
/// for so many stages.
pub(crate) fn puts(
    settings: &EngineSettings,
    parcels: usize,
    stages: usize,
    together: usize,
) -> Run {
    let secret = |path| std::fs::read_to_string(path).unwrap().trim().to_owned();
    let options = ClientOptions::new()
        .with_allow_http(true)
        .with_no_system_certificates(true);
    let bucket = AmazonS3Builder::new()
        .with_endpoint(&settings.endpoint)
        .with_bucket_name(&settings.bucket)
        .with_region(&settings.region)
        .with_access_key_id(secret(&settings.key_file))
        .with_secret_access_key(secret(&settings.secret_file))
        .with_checksum_algorithm(Checksum::SHA256)
        .with_client_options(options)
        .build()
        .unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let clock = Clock::start();
        let objects = parcels / together;
        let keys = (0..stages).flat_map(|stage| {
            let floor = format!("{}/floor-{stages}-{together}", settings.prefix);
            (0..objects)
                .map(move |number| format!("{floor}/{stage}/{:02x}/p{number}", number % 256))
        });
        let puts = stream::iter(keys)
            .map(|key| {
                let bucket = &bucket;
                async move {
                    let receipt = vec![b'r'; RECEIPT_BYTES * together].into();
                    let options = PutOptions::from(PutMode::Create);
                    bucket.put_opts(&Key::from(key), receipt, options).await
                }
            })
            .buffer_unordered(PUTS)
            .map_ok(|_| 1)
            .try_fold(0, |sum, one| future::ready(Ok(sum + one)));
        let put: usize = puts.await.unwrap();
        assert_eq!(put, objects * stages);
        clock.stop(parcels)
    })
}

async fn queue(context: &Context, name: &str) -> PullConsumer {
    let config = Config {
        name: name.to_owned(),
        subjects: vec![format!("{name}.*")],
        retention: RetentionPolicy::WorkQueue,
        storage: StorageType::File,
        discard: DiscardPolicy::New,
        max_messages_per_subject: 1,
        discard_new_per_subject: true,
        num_replicas: 3,
        ..Config::default()
    };
    let stream = context.get_or_create_stream(config).await.unwrap();
    let config = pull::Config {
        durable_name: Some("workers".to_owned()),
        ack_policy: AckPolicy::Explicit,
        max_ack_pending: 200_000,
        ..pull::Config::default()
    };
    stream
        .get_or_create_consumer("workers", config)
        .await
        .unwrap()
}

/// Publishes a group and waits until all of it is kept.
async fn publish(context: &Context, stage: &str, names: &[String]) {
    let mut told = Vec::new();
    for name in names {
        let message = vec![b'm'; BYTES].into();
        told.push(
            context
                .publish(format!("{stage}.{name}"), message)
                .await
                .unwrap(),
        );
    }
    for told in told {
        told.await.unwrap();
    }
}

async fn pump(
    context: Context,
    stages: Vec<String>,
    consumers: Vec<PullConsumer>,
    messages: usize,
) {
    let last = STAGES.len();
    loop {
        for at in 0..last {
            let mut fetched = consumers[at]
                .fetch()
                .max_messages(GROUP)
                .messages()
                .await
                .unwrap();
            let mut group = Vec::new();
            while let Some(message) = fetched.next().await {
                group.push(message.unwrap());
            }
            let names: Vec<String> = group
                .iter()
                .map(|message| message.subject.rsplit('.').next().unwrap().to_owned())
                .collect();
            publish(&context, &stages[at + 1], &names).await;
            for message in group {
                message.ack().await.unwrap();
            }
        }
        let mut end = context.get_stream(&stages[last]).await.unwrap();
        if end.info().await.unwrap().state.messages == messages as u64 {
            return;
        }
    }
}
