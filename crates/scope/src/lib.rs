//! What a crawl may fetch, and why.
//!
//! * [`Order`] is the job order, `order.toml`: all that a crawl is told, checked as a whole.
//! * [`Scope`] decides which URLs belong to the job, by ordered rules, and can tell the whole story.
//! * [`Robots`] and [`Standing`] are robots.txt by RFC 9309; every verdict names the line that gave it.
//! * [`SeedList`], [`CanonOrder`], [`queue_of`] and [`Grouping`] turn what people and pages write into URLs, keys, queues
//!   and groups.
//!
//! Bytes in, values out: this crate opens no file and no socket, and has no clock; the year and the time are given. What
//! is decided here is told in `docs/formats/` under `scope.md`, `robots.md` and `order.md`. Fetching, waiting and
//! remembering are left to the crawl and its frontier.

mod canon;
mod change;
pub mod hops;
mod limit;
mod order;
mod queue;
mod robots;
mod scope;
mod seed;
mod surts;

pub use crate::canon::CanonOrder;
pub use crate::change::{Change, Changed, changes};
pub use crate::limit::Limit;
pub use crate::order::{
    AgentError, AgentOrder, Amended, BackOffOrder, BudgetException, BudgetOrder, CompressionOrder,
    CookiesKept, DedupOrder, ExtractOrder, FrontierOrder, GroupOrder, ImportanceOrder,
    InvalidCertificates, LimitsOrder, MannersOrder, NetworkOrder, NofollowPolicy, Order,
    PayloadDigestOf, Priority, QueueBudget, ReadOrder, RobotsOrder, SeedsOrder, TlsOrder,
    WarcOrder,
};
pub use crate::queue::{
    Assigned, GroupBy, Grouping, HostPattern, Members, PatternError, QueueBy, queue_of,
    registered_domain,
};
pub use crate::robots::{
    AgentRules, Freshness, Ground, Reading, Robots, RobotsAnswer, RobotsLimits, RobotsPolicy,
    RobotsReason, RobotsVerdict, RuleLine, Standing,
};
pub use crate::scope::{
    CalendarOrder, CandidateUrl, Decision, Evidence, Judgement, OwnRule, RegexFault, RegexReach,
    SEQUENCE, Scope, ScopeError, ScopeErrors, ScopeFault, ScopeOrder, ScopeVerdict, Spoken,
    TrapsOrder,
};
pub use crate::seed::{Bare, Seed, SeedCount, SeedError, SeedFault, SeedList, seed_urls};
pub use crate::surts::{Reach, SurtMatch, SurtPrefixError, SurtSet};
