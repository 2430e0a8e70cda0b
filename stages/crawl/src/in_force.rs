//! The order in force and all that follows from it, as one value.
//!
//! A change of the order makes another one, which takes its place whole. What was begun under the one before ends under it.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use ecluse_extract::ExtractLimits;
use ecluse_http::{Client, Resolver, ResolverSettings, Servers, Settings as ClientSettings};
use ecluse_scope::{CompressionOrder, Grouping, Order};
use ecluse_stage::Failure;
use ecluse_warc::{Packer, Packing};

use crate::job::Job;
use crate::pool::PoolOrder;

/// The order in force.
pub(crate) struct InForce {
    pub(crate) order: Order,
    /// How queues are put in groups.
    pub(crate) grouping: Grouping,
    /// What is sent as User-Agent.
    pub(crate) user_agent: String,
    pub(crate) client: Client,
    pub(crate) resolver: Rc<Resolver>,
    /// What the threads go by that look for links and pack.
    pub(crate) pool_order: Arc<PoolOrder>,
    /// For the few records that the engine packs itself.
    pub(crate) packer: RefCell<Packer>,
}

impl InForce {
    /// Puts an order in force, in the place of another one.
    ///
    /// # Errors
    /// Holds an order that names no agent or resolver; halts when the machine refuses.
    pub(crate) fn new(job: &Job, order: Order, before: Option<&Self>) -> Result<Self, Failure> {
        // What is remembered of names stays, unless others are to be asked for them.
        let same =
            before.filter(|before| before.order.network.resolvers == order.network.resolvers);
        let packing = packing(&order);
        Ok(Self {
            grouping: order.grouping(),
            user_agent: order.user_agent(&job.contact).map_err(Failure::hold)?,
            client: client(job, &order)?,
            resolver: match same {
                Some(before) => Rc::clone(&before.resolver),
                None => Rc::new(resolver(&order).map_err(Failure::hold)?),
            },
            pool_order: Arc::new(pool_order(job, &order, packing)),
            packer: RefCell::new(Packer::new(packing)),
            order,
        })
    }
}

/// The client that an order asks for. How many fetches there are at once is the engine's to say.
fn client(job: &Job, order: &Order) -> Result<Client, Failure> {
    let mut settings = ClientSettings::new(&job.dir.spool());
    settings.connections = usize::MAX >> 4;
    settings.kept_connections = usize::try_from(order.manners.connections)
        .unwrap_or(500)
        .max(64);
    settings.bytes_per_second = order.manners.bandwidth.get().map(|bytes| bytes.get());
    settings.spooling.memory_bytes =
        usize::try_from(order.limits.memory.get()).unwrap_or(256 << 10);
    Client::new(settings).map_err(Failure::halt)
}

/// The resolver that an order asks for; in words why there is none to be had.
fn resolver(order: &Order) -> Result<Resolver, String> {
    let mut servers = Vec::new();
    for text in &order.network.resolvers {
        let address = text.parse::<SocketAddr>();
        servers.push(address.map_err(|error| format!("resolver {text:?}: {error}"))?);
    }
    let settings = ResolverSettings {
        // Who names his resolvers wants to hear these.
        hosts: ResolverSettings::default()
            .hosts
            .filter(|_| servers.is_empty()),
        servers: match servers.is_empty() {
            true => Servers::System,
            false => Servers::Given(servers),
        },
        ..ResolverSettings::default()
    };
    Resolver::new(settings).map_err(|error| error.to_string())
}

fn pool_order(job: &Job, order: &Order, packing: Packing) -> PoolOrder {
    PoolOrder {
        packing,
        limits: ExtractLimits {
            document_bytes: order.extract.size.get(),
            links: order.extract.links as usize,
            url_bytes: order.scope.url_length as usize,
            ..ExtractLimits::default()
        },
        speculative: order.extract.speculative,
        sitemaps: order.extract.sitemaps,
        favicons: order.extract.favicons,
        robots_bytes: order.robots.size.get(),
        spool: job.dir.spool(),
    }
}

fn packing(order: &Order) -> Packing {
    match order.warc.compression {
        CompressionOrder::Gzip => Packing::Gzip(order.warc.gzip_level),
        CompressionOrder::None => Packing::None,
    }
}
