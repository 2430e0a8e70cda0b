//! What an order says of queues, groups and budgets, in the frontier's words.

use std::time::Duration;

use ecluse_frontier::{Budget, Frontier, Manners, Memory, Overrides, Settings};
use ecluse_scope::{Order, QueueBudget};

/// What the stage's own settings say of every job.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Capacity {
    /// Queues in memory.
    pub(crate) active_queues: usize,
    /// Bytes the frontier may take.
    pub(crate) memory: u64,
}

/// The frontier's settings for an order.
pub(crate) fn frontier_settings(order: &Order, capacity: Capacity) -> Settings {
    let manners = &order.manners;
    let queue = &order.budget.queue;
    Settings {
        manners: Manners {
            delay_factor: manners.delay_factor,
            min_delay: manners.min_delay.get(),
            max_delay: manners.max_delay.get(),
            address_delay: manners.address_delay.get(),
            crawl_delay_limit: manners.crawl_delay_limit.get(),
            connections: manners.group_connections,
            backoff: manners.back_off.first.get(),
            backoff_factor: manners.back_off.factor,
            backoff_failures: manners.back_off.failures,
            backoff_limit: manners.back_off.max.get(),
            retry_after_limit: manners.back_off.retry_after_limit.get(),
            bytes_per_second: manners.group_bandwidth.get().map(|bytes| bytes.get()),
        },
        budget: budget(queue),
        error_penalty: queue.error_penalty,
        session_balance: queue.balance,
        retries: queue.tries.saturating_sub(1),
        active_queues: capacity.active_queues,
        memory: memory(capacity.memory),
        ..Settings::default()
    }
}

fn budget(budget: &QueueBudget) -> Budget {
    Budget {
        urls: budget.urls.get(),
        bytes: budget.bytes.get().map(|bytes| bytes.get()),
        time: budget.time.get().map(|span| span.get()),
    }
}

/// The budget of a host's queue.
pub(crate) fn budget_of(order: &Order, host: &str) -> Budget {
    budget(&order.queue_budget(host))
}

/// The budget of a host's queue where it is not the usual one.
pub(crate) fn exception(order: &Order, host: &str) -> Option<Budget> {
    let own = budget_of(order, host);
    (own != budget(&order.budget.queue)).then_some(own)
}

/// Tells the frontier of the order's groups.
///
/// # Errors
/// When the frontier fails.
pub(crate) fn set_groups(order: &Order, frontier: &mut Frontier) -> ecluse_frontier::Result<()> {
    for group in &order.manners.groups {
        let overrides = Overrides {
            delay_factor: group.delay_factor,
            min_delay: group.min_delay.map(|span| span.get()),
            max_delay: group.max_delay.map(|span| span.get()),
            connections: group.connections,
            bytes_per_second: group
                .bandwidth
                .and_then(|limit| limit.get())
                .map(|bytes| bytes.get()),
        };
        frontier.set_overrides(&group.name, overrides)?;
    }
    Ok(())
}

/// How long a group rests for certain after it was asked, whatever becomes of the job meanwhile.
pub(crate) fn least_rest(order: &Order, group: &str, crawl_delay: Option<Duration>) -> Duration {
    let manners = &order.manners;
    let named = manners.groups.iter().find(|named| named.name == group);
    let own = named.and_then(|named| named.min_delay);
    let asked = crawl_delay.unwrap_or_default();
    let least = own.unwrap_or(manners.min_delay).get();
    least.max(asked.min(manners.crawl_delay_limit.get()))
}

/// Shares the memory out as the frontier's own defaults do.
fn memory(bytes: u64) -> Memory {
    let usual = Memory::default();
    let share = |of: u64| bytes.saturating_mul(of) / 64;
    let small = |of: u64| usize::try_from(share(of)).unwrap_or(usize::MAX);
    Memory {
        changes: small(12).max(1 << 16),
        filters: share(40),
        heads: small(8).max(1 << 16),
        ..usual
    }
}

/// How long a URL waits that failed, before it is tried again.
pub(crate) fn retry_delay(order: &Order) -> Duration {
    order.budget.queue.retry_delay.get()
}
