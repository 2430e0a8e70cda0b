//! Finds which names exist, and where they lead.
//!
//! * **Reads** a parcel with `names.tsv`, as preload gives it; the lists of parking services and sinkholes; the register.
//! * **Writes** `checked.tsv` beside it: for each name what DNS says of it, apex and `www.`. Where redirects are followed, a list of
//!   the sites that were not known goes back to preload. Named files become checked lines on standard output instead.
//! * **Never** takes a time-out for "does not exist": a name is absent when two resolvers say so, and what nobody could say
//!   anything of is asked again later and in the end kept. Never asks a web server sooner than the crawl would, nor one that
//!   librarians force out.
//! * **Defers** while no resolver answers, and between rounds over names without an answer. **Holds** a list that is none of
//!   preload's.
//! * **Again**: the same answers give the same bytes. A check that was killed goes on where it was.

mod asker;
mod check;
mod filter;
mod form;
mod hints;
mod list;
mod parcel_check;
mod probe;
mod progress;
mod redirects;
mod report;
mod resolver;
mod settings;
mod tally;
mod tcp;
mod unsettled;
mod wire;

use std::io::Write;
use std::path::PathBuf;

use ecluse_names::ForcedRules;
use ecluse_stage::{Exit, Failure, Home, Outbox, Parcel, SettingsCheck, Stage};

use crate::hints::HintLists;
use crate::parcel_check::ParcelCheck;

pub use crate::settings::Settings;

/// The stage.
pub struct DnsFilter {
    settings: Settings,
    home: Home,
    hints: HintLists,
}

impl Stage for DnsFilter {
    const NAME: &'static str = "dns-filter";
    const ABOUT: &'static str = "Finds which names exist, and where they lead";
    type Settings = Settings;
    const FILTER: Option<&'static str> = Some(
        "Lists of names, plain or as preload writes them: what DNS says of each goes to standard output",
    );

    fn check(settings: &Settings, home: &Home, check: &mut SettingsCheck<'_>) {
        const RESOLVERS: &str = "stage.dns-filter.resolvers";
        if !settings.resolvers.is_empty() {
            match settings.resolvers() {
                Err(fault) => check.error(RESOLVERS, fault),
                Ok(resolvers) if resolvers.len() == 1 => check.warning(
                    RESOLVERS,
                    "there is one resolver alone: without a second one no name is ever found absent",
                ),
                Ok(_) => {}
            }
        }
        if let Err(fault) = settings.hint_lists(&home.root) {
            check.error("stage.dns-filter.hints", fault.reason);
        }
        if let Err(fault) = ForcedRules::read(&home.path(&settings.forced)) {
            check.error("stage.dns-filter.forced", fault);
        }
        if settings.redirects && home.site.contact.is_empty() {
            check.error(
                "stage.dns-filter.redirects",
                "web servers are told how to reach you: site.contact is empty",
            );
        }
        check.directory("stage.dns-filter.reports", &settings.reports);
    }

    fn try_out(settings: &Settings, _home: &Home, check: &mut SettingsCheck<'_>) {
        // Those of the system are the system's concern.
        if settings.resolvers.is_empty() {
            return;
        }
        for fault in probe::probe(settings) {
            check.warning("stage.dns-filter.resolvers", fault);
        }
    }

    fn open(settings: Settings, home: &Home) -> Result<Self, Failure> {
        Ok(Self {
            hints: settings.hint_lists(&home.root)?,
            home: home.clone(),
            settings,
        })
    }

    fn writes(settings: &Settings, home: &Home) -> Vec<PathBuf> {
        let mut paths = vec![home.path(&settings.reports)];
        if settings.redirects {
            paths.push(home.path(&settings.paces));
        }
        paths
    }

    fn needs_network(_settings: &Settings) -> bool {
        true
    }

    fn process(&mut self, parcel: &Parcel, outbox: &mut Outbox) -> Result<(), Failure> {
        progress::sweep(&self.home)?;
        let check = ParcelCheck {
            settings: &self.settings,
            home: &self.home,
            hints: &self.hints,
        };
        check.run(parcel, outbox)
    }

    fn filter(settings: Settings, files: &[PathBuf], out: &mut dyn Write) -> Result<Exit, Failure> {
        filter::filter(&settings, files, out)
    }
}
