//! JetStream alone, with the settings that our queues have: what nobody who dispatches by it can do without.

use async_nats::jetstream::consumer::{AckPolicy, PullConsumer, pull};
use async_nats::jetstream::stream::{Config, DiscardPolicy, RetentionPolicy, StorageType};
use async_nats::jetstream::{self, Context};
use futures_util::{StreamExt, future};

use crate::{Clock, END, GROUP, Run, STAGES, WORKERS};

/// A message is as large as ours with a ticket in it.
const BYTES: usize = 600;

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
            consumers.push(stream(&context, stage).await);
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

async fn stream(context: &Context, name: &str) -> PullConsumer {
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
