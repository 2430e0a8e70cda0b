//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// Collects, indexes and keeps a nation's web.
#[derive(Debug, Parser)]
#[command(name = "ecluse", version, about, propagate_version = true, after_help = AFTER)]
pub(crate) struct Cli {
    /// Everything lies under here
    #[arg(
        long,
        env = "ECLUSE_ROOT",
        default_value = ".",
        global = true,
        value_name = "DIR"
    )]
    pub(crate) root: PathBuf,
    /// The settings; without it <root>/pipeline.toml, else the built-in ones
    #[arg(long, env = "ECLUSE_CONFIG", global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// What is logged: error, warn, info, debug, trace
    #[arg(long, env = "ECLUSE_LOG", global = true, value_name = "LEVEL")]
    pub(crate) log: Option<String>,
    /// Shows JSON instead of text
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Says only what went wrong
    #[arg(long, short, global = true)]
    pub(crate) quiet: bool,
    /// What to do
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

const AFTER: &str =
    "Exit codes: 0 done, 64 usage error, 65 some parcels held, 74 the machine failed,
75 some parcels wait for later, 78 configuration error. Any other code is a failure.";

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Runs the chain, or some of its stages
    #[command(
        after_help = "Examples:\n  ecluse run --once             takes what there is through the chain, then stops\n  ecluse run index transfer     runs two stages until told to stop\n  ecluse run --processes        one process a stage, restarted when it dies"
    )]
    Run(RunOptions),
    /// Shows each stage on one screen, then what needs you
    #[command(
        after_help = "Examples:\n  ecluse status                 one screen\n  ecluse status --watch         the same, drawn again every two seconds\n  ecluse status --brief         one line, for motd\n  ecluse status --json | jq .needs-you"
    )]
    Status(StatusOptions),
    /// Tells the life of one parcel: every step, what happens next, what you can do
    #[command(
        after_help = "Examples:\n  ecluse why 1                  the first line of NEEDS YOU\n  ecluse why BnF-145-412        the parcel whose name begins so"
    )]
    Why {
        /// A parcel, the beginning of its name, a file name, or a number of NEEDS YOU
        what: String,
    },
    /// Finds where files are
    #[command(
        after_help = "Examples:\n  ecluse find job=145\n  ecluse find harvest=412 00017\n  ecluse find sha256:9f86d081884c7d65"
    )]
    Find {
        /// job=…, harvest=…, sha256:…, or a part of a name; all must fit
        #[arg(required = true)]
        terms: Vec<String>,
    },
    /// Gives files to a stage; the files stay where they are
    #[command(after_help = "Example:\n  ecluse give index a.warc.gz --job 145 --harvest 412")]
    Give(GiveOptions),
    /// Lets held or deferred parcels be tried again at once
    #[command(
        after_help = "Examples:\n  ecluse retry 2\n  ecluse retry --stage index --reason truncated"
    )]
    Retry(Choice),
    /// Sets waiting or deferred parcels aside for a person
    #[command(
        after_help = "Example:\n  ecluse hold BnF-145-412-00017 --why \"curator looks first\""
    )]
    Hold(Choice),
    /// Lets held parcels go on
    #[command(after_help = "Example:\n  ecluse release 1 --why \"looked at it, harmless\"")]
    Release(Choice),
    /// Takes parcels out of the chain; they stay on disk under discarded/
    #[command(after_help = "Example:\n  ecluse discard 1 --why \"test file of the crawl team\"")]
    Discard(Choice),
    /// Lets a stage take no more work; what is in hand is finished
    #[command(
        after_help = "Examples:\n  ecluse pause transfer --why \"disk swap on node001\"\n  ecluse pause all --why maintenance"
    )]
    Pause(StageChoice),
    /// Lets a paused stage take work again
    #[command(after_help = "Example:\n  ecluse resume transfer")]
    Resume(StageChoice),
    /// Looks at configuration and machine; ends as Nagios expects: 0, 1, 2 or 3
    #[command(
        after_help = "Examples:\n  ecluse check                  one line with figures\n  ecluse check --offline        the configuration alone"
    )]
    Check {
        /// Looks at the configuration alone
        #[arg(long)]
        offline: bool,
    },
    /// Writes the systemd units for the stages of this pipeline.toml
    #[command(after_help = "Example:\n  ecluse --root /srv/ecluse units --out /etc/systemd/system")]
    Units(UnitsOptions),
    /// Shows the settings in force and where each comes from
    #[command(after_help = "Example:\n  ecluse config | grep -v '# built-in'")]
    Config,
    /// Makes the directories and a commented pipeline.toml; never overwrites
    #[command(after_help = "Example:\n  ecluse --root /srv/ecluse init")]
    Init,
    /// Writes completions for a shell
    #[command(after_help = "Example:\n  ecluse completions bash > /etc/bash_completion.d/ecluse")]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Writes the manual pages
    #[command(after_help = "Example:\n  ecluse man --out /usr/share/man/man1")]
    Man {
        /// One page a verb goes there; without it the first page goes to standard output
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct RunOptions {
    /// Stages; without any, the whole chain
    pub(crate) stages: Vec<String>,
    /// Stops when nothing is left to do
    #[arg(long)]
    pub(crate) once: bool,
    /// One process a stage instead of threads in this one
    #[arg(long)]
    pub(crate) processes: bool,
    /// Workers a stage, instead of the settings' number
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) workers: Option<u32>,
}

#[derive(Debug, Args)]
pub(crate) struct StatusOptions {
    /// One stage alone
    pub(crate) stage: Option<String>,
    /// Draws again every two seconds
    #[arg(long, conflicts_with_all = ["brief", "json"])]
    pub(crate) watch: bool,
    /// One line
    #[arg(long)]
    pub(crate) brief: bool,
}

#[derive(Debug, Args)]
pub(crate) struct GiveOptions {
    /// The stage
    pub(crate) stage: String,
    /// The files
    #[arg(required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// What kind of thing they are
    #[arg(long, default_value = "file")]
    pub(crate) kind: String,
    /// The crawl job they belong to
    #[arg(long)]
    pub(crate) job: Option<String>,
    /// The harvest they belong to
    #[arg(long)]
    pub(crate) harvest: Option<String>,
    /// Does the work over although it was finished before: as a new parcel, X+2
    #[arg(long)]
    pub(crate) again: bool,
    #[command(flatten)]
    pub(crate) act: Act,
}

#[derive(Debug, Args)]
pub(crate) struct Choice {
    /// Parcels, beginnings of their names, or numbers of NEEDS YOU
    pub(crate) parcels: Vec<String>,
    /// Parcels of this stage; with --all or --reason
    #[arg(long)]
    pub(crate) stage: Option<String>,
    /// All that can be
    #[arg(long, requires = "stage")]
    pub(crate) all: bool,
    /// Those held for a reason that contains this
    #[arg(long, requires = "stage", value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    #[command(flatten)]
    pub(crate) act: Act,
}

#[derive(Debug, Args)]
pub(crate) struct StageChoice {
    /// A stage, or `all`
    pub(crate) stage: String,
    #[command(flatten)]
    pub(crate) act: Act,
}

/// What every verb that changes something takes.
#[derive(Debug, Args)]
pub(crate) struct Act {
    /// Why, for the audit log
    #[arg(long, value_name = "TEXT")]
    pub(crate) why: Option<String>,
    /// Says what would be done, and does nothing
    #[arg(long, short = 'n')]
    pub(crate) dry_run: bool,
}

#[derive(Debug, Args)]
pub(crate) struct UnitsOptions {
    /// Where the units go
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// Where the programs are
    #[arg(long, value_name = "DIR", default_value = crate::units::PROGRAMS)]
    pub(crate) programs: PathBuf,
    /// Starts a stage when something waits for it, instead of at boot
    #[arg(long)]
    pub(crate) path_units: bool,
}
