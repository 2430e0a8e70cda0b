//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Collects, indexes and keeps a nation's web.
#[derive(Debug, Parser)]
#[command(name = "ecluse", version, about, propagate_version = true, after_help = AFTER)]
pub(crate) struct Cli {
    /// The archive's directory (default: the current one; `archive` for harvest, `demo` for demo)
    #[arg(long, env = "ECLUSE_ROOT", global = true, value_name = "DIR")]
    root: Option<PathBuf>,
    /// The settings file (default: pipeline.toml in the archive's directory, if there is one)
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

impl Cli {
    /// Returns where everything lies.
    pub(crate) fn root(&self) -> PathBuf {
        let (into, otherwise) = match &self.verb {
            Verb::Harvest(options) if options.verb.is_none() => (options.into.as_ref(), "archive"),
            Verb::Demo(options) => (options.into.as_ref(), "demo"),
            _ => (None, "."),
        };
        let said = into.or(self.root.as_ref());
        said.map_or_else(|| otherwise.into(), PathBuf::clone)
    }
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Fetches pages and takes them through the whole chain, then tells what came of it
    #[command(after_help = HARVEST_HELP)]
    Harvest(HarvestOptions),
    /// Harvests a small web that the program itself serves on this machine
    #[command(after_help = DEMO_HELP)]
    Demo(DemoOptions),
    /// Runs the chain, or some of its stages
    #[command(
        after_help = "Examples:\n  ecluse run --once             takes what there is through the chain, then stops\n  ecluse run index transfer     runs two stages until told to stop\n  ecluse run --processes        one process a stage, restarted when it dies"
    )]
    Run(RunOptions),
    /// Shows each stage on one screen, then what needs you
    #[command(
        after_help = "Examples:\n  ecluse status                 one screen\n  ecluse status --watch         the same, drawn again every two seconds; q leaves it\n  ecluse status --brief         one line, for motd\n  ecluse status --json | jq .needs_you"
    )]
    Status(StatusOptions),
    /// Tells the life of one parcel, or with --job why a URL was fetched or not
    #[command(
        after_help = "Examples:\n  ecluse why 1                  the first line of NEEDS YOU\n  ecluse why BnF-145-412        the parcel whose name begins so\n  ecluse why https://example.org/a --job example.org"
    )]
    Why(WhyOptions),
    /// Lists the harvest definitions with their last run and the next five
    #[command(after_help = "Example:\n  ecluse harvests --json | jq '.harvests[].next[0]'")]
    Harvests,
    /// Shows what a run of a harvest would order now: jobs, how full they are, the largest domains, and how long it takes
    #[command(
        after_help = "Examples:\n  ecluse plan broad2027 --preview\n  ecluse plan press --simulate 30 --plot press.svg"
    )]
    Plan(PlanOptions),
    /// Lists the jobs of the crawl, running and finished, or tells of one with its reports
    #[command(
        after_help = "Examples:\n  ecluse jobs                   all, those at work first\n  ecluse jobs example.org       the newest of this job: its summary and its reports"
    )]
    Jobs(JobsOptions),
    /// Pauses a job of the crawl, lets it go on, or ends it; or says that a job is complete
    #[command(
        subcommand,
        after_help = "Examples:\n  ecluse job pause example.org --why \"the site's owner asked\"\n  ecluse job resume example.org\n  ecluse job end example.org-20260101000000 --why \"we have enough\"\n  ecluse job close 145-412 --why \"from the archive of 2009, counted by hand\"\n\n`ecluse pause crawl` pauses all jobs."
    )]
    Job(JobVerb),
    /// Changes the order of a running job: what the file does not say stays
    #[command(
        after_help = "Example:\n  ecluse amend 145 slower.toml --why \"the site's owner asked\"\n\nThe file has the form of an order: [manners], [scope], [budget] and so on."
    )]
    Amend(AmendOptions),
    /// Finds where files are
    #[command(
        after_help = "Examples:\n  ecluse find job=145\n  ecluse find harvest=412 00017\n  ecluse find sha256:9f86d081884c7d65\n  ecluse find damaged           files of which something could not be read"
    )]
    Find {
        /// job=…, harvest=…, sha256:…, damaged, or a part of a name; all must fit
        #[arg(required = true)]
        terms: Vec<String>,
    },
    /// Prints the captures of a URL in the current index; ends with 1 when there are none
    #[command(
        after_help = "Examples:\n  ecluse lookup https://example.org/\n  ecluse lookup example.org --match domain --limit 20\n  ecluse lookup example.org/news/ --match prefix --json | jq .timestamp"
    )]
    Lookup(LookupOptions),
    /// Shows what a page links to and what links to it; ends with 1 when neither is known
    #[command(
        after_help = "Examples:\n  ecluse links https://example.org/\n  ecluse links example.org --in --limit 20\n  ecluse links example.org/news/ --out --json | jq .out"
    )]
    Links(LinksOptions),
    /// Shows what the register knows of a domain; ends with 1 when it is not there
    #[command(
        after_help = "Examples:\n  ecluse register exemple.fr\n  ecluse register --stats\n  ecluse register --export csv > register.csv"
    )]
    Register(RegisterOptions),
    /// Tells what became of the pages of a site, as a site-delta in XML or JSON; ends with 1 when there are none
    #[command(
        after_help = "Examples:\n  ecluse delta example.org --from 2026-01 --to 2026-03 > example.xml\n  ecluse delta example.org/news/ --json | jq '.pages[].documents[0]'\n  ecluse delta example.org --at 2026-02-14 --which likeliest\n\nEvery version with its date and its status (new, updated, unchanged, error), newest first."
    )]
    Delta(DeltaOptions),
    /// Tells how much of what happened was caught, and how much of it belongs together
    #[command(
        after_help = "Examples:\n  ecluse quality example.org           a site\n  ecluse quality 145-412               a job; 412: its harvest\n  ecluse quality press --json | jq .completeness"
    )]
    Quality(QualityOptions),
    /// Prints one capture of a URL, its head and its body; ends with 1 when there is none
    #[command(
        after_help = "Examples:\n  ecluse show https://example.org/                 the last capture\n  ecluse show example.org --at 2026-01-31          the last until that day\n  ecluse show https://example.org/a.pdf -o a.pdf   its body into a file\n\nChunks and content encodings are undone, an unchanged capture is shown with the body it refers to; --raw\ngives the bytes as they were archived."
    )]
    Show(ShowOptions),
    /// Serves the archive to browsers and programs
    #[command(
        after_help = "Examples:\n  ecluse --root my-archive serve                then open http://127.0.0.1:8080/\n  ecluse serve --listen 127.0.0.1:0             on a port that is free\n  ecluse serve --pywb pywb                      a configuration for pywb instead\n  curl 'http://127.0.0.1:8080/web/cdx?url=example.org&matchType=host'\n\nIt reads the index and the stored files, and writes nothing into the archive. [access] of pipeline.toml has its settings."
    )]
    Serve(ServeOptions),
    /// Gives files to a stage; the files stay where they are
    #[command(
        after_help = "Examples:\n  ecluse give crawl order.toml\n  ecluse give index a.warc.gz --again     does it over, as with a new version\n  ecluse give index --lost                files whose work directory was removed by hand\n\nNew (W)ARC files go into harvested/."
    )]
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
    /// Takes parcels out of the chain; they stay on disk in discarded/ of their stage
    #[command(after_help = "Example:\n  ecluse discard 1 --why \"test file of the crawl team\"")]
    Discard(Choice),
    /// Lets a stage take no more work; what is in hand is finished, but running crawl jobs pause
    #[command(
        after_help = "Examples:\n  ecluse pause transfer --why \"disk swap on node001\"\n  ecluse pause all --why maintenance"
    )]
    Pause(StageChoice),
    /// Lets a paused stage take work again
    #[command(after_help = "Example:\n  ecluse resume transfer")]
    Resume(StageChoice),
    /// Writes the captures of a job or a collection for others to use
    #[command(
        after_help = "Examples:\n  ecluse export 145-412 --as wacz\n  ecluse export elections --as warc --url example.org --match domain -o example.warc.gz\n  ecluse export 145 --as text | less\n  ecluse export --sort-job /srv/sort     for an index too large for one machine\n\nWACZ and WARC go into a file, NAME.wacz or NAME.warc.gz unless -o names another; the others to standard output."
    )]
    Export(ExportOptions),
    /// Checks packages, whoever made them: BagIt bags, WACZ files, OCFL objects and storage roots
    #[command(
        after_help = "Examples:\n  ecluse validate packages/*\n  ecluse validate 145.wacz /srv/ocfl\n  ecluse validate --strict /mnt/received/bag-17\n\nEnds with 65 when one is not valid; the first line says what is wrong. Every file is read."
    )]
    Validate(ValidateOptions),
    /// Tells what was handed over to the preservation repository, by harvest and channel, and what waits
    #[command(
        after_help = "Examples:\n  ecluse deposits                     by harvest and channel\n  ecluse deposits --files             each file with its state and identifier\n  ecluse deposits --files --format csv > deposits.csv"
    )]
    Deposits(DepositsOptions),
    /// Reads stored copies and packages again, the oldest check first; a mismatch freezes every removal
    #[command(
        after_help = "Examples:\n  ecluse verify --budget '500 GiB'     a night's share\n  ecluse verify --dry-run             which copies are next\n  ecluse verify --release --why '…'   lets delete and clean go on after a mismatch"
    )]
    Verify(VerifyOptions),
    /// Puts a bad or missing copy or package right from a good copy; the bad bytes are set aside
    #[command(
        after_help = "Examples:\n  ecluse repair BnF-145-412-00017.warc.gz\n  ecluse repair 145-412               a package that is bad or lost\n  ecluse repair --all --why 'disk 3 replaced'\n  ecluse repair --all --dry-run       what would be put back, and from where\n\nEvery copy of a file is read first. When no bad copy is left, delete and clean go on."
    )]
    Repair(RepairOptions),
    /// Makes anew what can be made from receipts and stored files, or a lost archive from its packages
    #[command(
        after_help = "Examples:\n  ecluse rebuild manifest --why 'disk 1 lost its database'\n  ecluse rebuild path --why 'moved to /srv/ecluse'\n  ecluse rebuild index --why 'disk 2 lost it'\n  ecluse rebuild register --why 'disk 2 lost it'\n  ecluse rebuild links --why 'disk 2 lost them'\n  ecluse rebuild changes --why 'other periods'\n  ecluse --root /srv/new rebuild --from /mnt/packages\n\nThe stages must be stopped. The old manifest stays beside the new one; nothing is removed from the archive."
    )]
    Rebuild(RebuildOptions),
    /// Holds what waits in the store against the queues, and tells of what no worker would hear of
    #[command(
        after_help = "Examples:\n  ecluse reconcile              every stage\n  ecluse reconcile index        one of them\n  ecluse reconcile --collect --dry-run   which files in the store no parcel has\n  ecluse reconcile --collect    and remove them, when they are older than engine.collect-after\n\nWith [engine] kind = \"jetstream\". The stages do this by themselves at the start and every ten minutes; it does no harm\nwhile they run. With directories there is nothing to do."
    )]
    Reconcile {
        /// The stages; every one when none is named
        #[arg(value_name = "STAGE")]
        stages: Vec<String>,
        /// Instead, removes files from the store that no parcel has any more; the stages do so once a day
        #[arg(long, conflicts_with = "stages")]
        collect: bool,
        /// Counts them and removes nothing
        #[arg(long, requires = "collect")]
        dry_run: bool,
    },
    /// Moves stages with all they hold to the other engine, one after the other, while the others work
    #[command(
        after_help = "Examples:\n  ecluse move --to jetstream --dry-run\n  ecluse move --to jetstream merge bigmerge --why \"a second machine\"\n  ecluse move --to directories --why \"and back\"\n\nWith moving = true in [engine], so that the stages know of both engines. A stage takes no work while it moves; what is\nin hand is finished first. Killed, it can be run again, and the stage's own workers go on with it."
    )]
    Move(MoveOptions),
    /// Looks at configuration and machine; ends as Nagios expects: 0, 1, 2 or 3
    #[command(
        after_help = "Examples:\n  ecluse check                  one line with figures\n  ecluse check --offline        the configuration alone"
    )]
    Check {
        /// Looks at the configuration alone
        #[arg(long)]
        offline: bool,
    },
    /// Writes the systemd units for the stages of this pipeline.toml, or a job for Nomad, or manifests for Kubernetes
    #[command(
        after_help = "Examples:\n  ecluse --root /srv/ecluse units --out /etc/systemd/system\n  ecluse --root /srv/ecluse units --host alpha --out /etc/systemd/system\n  ecluse --root /srv/ecluse units --format kubernetes --image example.org/ecluse:1 --out ."
    )]
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

impl Verb {
    /// Tells whether a verb asks about parcels. The others do without the servers that may hold them.
    pub(crate) fn asks_for_parcels(&self) -> bool {
        !matches!(
            self,
            Verb::Config
                | Verb::Units(_)
                | Verb::Serve(_)
                | Verb::Lookup(_)
                | Verb::Show(_)
                | Verb::Links(_)
                | Verb::Register(_)
                | Verb::Delta(_)
                | Verb::Harvests
                | Verb::Quality(_)
                | Verb::Check { offline: true }
        )
    }

    /// Returns the name of a verb that makes text for others to read, and has nothing to say in JSON.
    pub(crate) fn without_json(&self) -> Option<&'static str> {
        match self {
            Verb::Completions { .. } => Some("completions"),
            Verb::Man { .. } => Some("man"),
            Verb::Init => Some("init"),
            Verb::Units(_) => Some("units"),
            Verb::Config => Some("config"),
            Verb::Serve(_) => Some("serve"),
            _ => None,
        }
    }
}

const HARVEST_HELP: &str =
    "Examples:
  ecluse harvest https://example.org/ --into archive
  ecluse harvest example.org --scope host --depth 3 --limit 500 --contact me@example.net
  ecluse harvest --seeds seeds.txt --delay 3s
  ecluse harvest check harvests/press.toml      a harvest definition

Stopped or killed, the same command goes on where it was; when all is done, it adds another harvest. A command
with other options asks what is to become of the one that is not finished.

Every request says whom to write to. Without --contact that is the contact in [site] of pipeline.toml,
else you on this machine (user@host): it may not be reachable from outside, but it is the truth, and no
stranger gets the mail. Say --contact when you harvest sites that are not yours.";

const DEMO_HELP: &str = "Examples:
  ecluse demo                   harvests the small web into demo/
  ecluse demo                   once more: most of it has not changed
  ecluse demo --into /tmp/try --port 8471";

#[derive(Debug, Args)]
pub(crate) struct PlanOptions {
    /// The harvest: the name of its file without .toml
    pub(crate) harvest: String,
    /// Shows it and starts nothing
    #[arg(
        long,
        required_unless_present = "simulate",
        conflicts_with = "simulate"
    )]
    pub(crate) preview: bool,
    /// Replays the last DAYS days of the index: what each refresh policy would have caught with the same captures
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..=i64::from(crate::simulate::MOST_DAYS)))]
    pub(crate) simulate: Option<u32>,
    #[command(flatten)]
    pub(crate) simulation: SimulateOptions,
}

#[derive(Debug, Args)]
pub(crate) struct SimulateOptions {
    /// Captures a period; as many as were made if it is not said
    #[arg(long, requires = "simulate", value_name = "N", value_parser = positive)]
    pub(crate) budget: Option<usize>,
    /// By the hour and not by the day: patterns of the day count
    #[arg(long, requires = "simulate")]
    pub(crate) hourly: bool,
    /// Also draws completeness by budget into this file (SVG)
    #[arg(long, requires = "simulate", value_name = "FILE")]
    pub(crate) plot: Option<PathBuf>,
}

/// A number that is at least one.
fn positive(text: &str) -> Result<usize, String> {
    let number: usize = text.parse().map_err(|_| "not a number".to_owned())?;
    match number {
        0 => Err("at least 1".to_owned()),
        number => Ok(number),
    }
}

/// What can be done with harvest definitions.
#[derive(Debug, Subcommand)]
pub(crate) enum HarvestVerb {
    /// Says what is wrong with harvest definitions, or when their next runs are
    Check(HarvestCheckOptions),
}

#[derive(Debug, Args)]
pub(crate) struct HarvestCheckOptions {
    /// Definitions
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct HarvestOptions {
    /// Or what is done with a definition
    #[command(subcommand)]
    pub(crate) verb: Option<HarvestVerb>,
    /// Where to begin: URLs or host names
    #[arg(required_unless_present = "seeds", value_name = "URL")]
    pub(crate) urls: Vec<String>,
    /// A file with one URL or host name a line
    #[arg(long, value_name = "FILE")]
    pub(crate) seeds: Option<PathBuf>,
    /// Where the archive is, or will be; the same as --root [default: archive]
    #[arg(long, value_name = "DIR")]
    pub(crate) into: Option<PathBuf>,
    /// How many links away from where it began [default: 20 hops, redirects counted]
    #[arg(long, value_name = "N")]
    pub(crate) depth: Option<u32>,
    /// Ends after so many URLs [default: none]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) limit: Option<u64>,
    /// How much around each seed belongs to it
    #[arg(long, value_enum, default_value_t = Around::Host, value_name = "HOW")]
    pub(crate) scope: Around,
    /// What is done with robots.txt
    #[arg(long, value_enum, default_value_t = Heed::Obey, value_name = "HOW")]
    pub(crate) robots: Heed,
    /// The pause between two requests to a server, at least
    #[arg(long, value_name = "TIME", default_value = "1s")]
    pub(crate) delay: ecluse_config::Span,
    /// How often a URL that cannot be reached is tried
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) tries: u32,
    /// Servers in private networks and on this machine are asked too
    #[arg(long)]
    pub(crate) allow_private: bool,
    /// What becomes of an earlier harvest of the site that is not finished [default: asks, on a terminal]
    #[arg(long, value_enum, value_name = "HOW")]
    pub(crate) unfinished: Option<Unfinished>,
    /// Whom a site's owner can write to: a mail address or a page
    #[arg(long, value_name = "MAIL|URL")]
    pub(crate) contact: Option<String>,
    /// Afterwards serves the archive on this machine and opens it in a browser, until Ctrl-C
    #[arg(long, conflicts_with = "json")]
    pub(crate) open: bool,
}

/// What becomes of an earlier harvest of the site that is not finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Unfinished {
    /// It is finished as it was ordered
    GoOn,
    /// It goes on with the options of this command
    Amend,
    /// It is ended, what it has is kept, and a new one begins
    Drop,
}

/// How much of the web around a seed belongs to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Around {
    /// Its domain with all hosts below
    Domain,
    /// Its host, with or without www
    Host,
    /// Its directory
    Path,
    /// The page alone, with what it needs to be shown
    Page,
}

/// What is done with robots.txt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Heed {
    /// It is obeyed
    Obey,
    /// It is not asked
    Ignore,
    /// It is obeyed, but what a page needs to be shown is fetched
    Requisites,
}

#[derive(Debug, Args)]
pub(crate) struct DemoOptions {
    /// Where the archive is, or will be; the same as --root [default: demo]
    #[arg(long, value_name = "DIR")]
    pub(crate) into: Option<PathBuf>,
    /// The port on 127.0.0.1 where the small web is served; it is part of every URL
    #[arg(long, value_name = "N", default_value_t = PORT)]
    pub(crate) port: u16,
}

/// Where the small web is served unless somebody says otherwise.
pub(crate) const PORT: u16 = 8470;

#[derive(Debug, Args)]
pub(crate) struct WhyOptions {
    /// A parcel, the beginning of its name, a file name, a number of NEEDS YOU, or a URL: in which runs it is visited, and why
    pub(crate) what: String,
    /// Asks a crawl job why it fetched a URL or not: JOB, whose newest harvest counts, or JOB-HARVEST
    #[arg(long, value_name = "JOB")]
    pub(crate) job: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct JobsOptions {
    /// One job: JOB, whose newest harvest counts, or JOB-HARVEST
    pub(crate) job: Option<String>,
}

/// What is done to a job.
#[derive(Debug, Subcommand)]
pub(crate) enum JobVerb {
    /// Lets it fetch nothing more until it is resumed
    Pause(JobChoice),
    /// Lets a paused job go on
    Resume(JobChoice),
    /// Ends it: what is fetched is all there will be; its reports are written
    End(JobChoice),
    /// Says that the files of a job are complete, so that it is packed: one of another archive, without a packing list
    Close(JobChoice),
}

#[derive(Debug, Args)]
pub(crate) struct JobChoice {
    /// The job: JOB, whose newest harvest counts, or JOB-HARVEST
    pub(crate) job: String,
    #[command(flatten)]
    pub(crate) act: Act,
}

#[derive(Debug, Args)]
pub(crate) struct AmendOptions {
    /// The job: JOB, whose newest harvest counts, or JOB-HARVEST
    pub(crate) job: String,
    /// What is to change, as in an order
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) act: Act,
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
    /// Draws again every two seconds, until q or Ctrl-C
    #[arg(long, conflicts_with_all = ["brief", "json"])]
    pub(crate) watch: bool,
    /// One line
    #[arg(long)]
    pub(crate) brief: bool,
}

#[derive(Debug, Args)]
pub(crate) struct LookupOptions {
    /// The URL, with or without its scheme
    pub(crate) url: String,
    /// What is meant by it
    #[arg(long = "match", value_enum, default_value_t = Match::Exact, value_name = "HOW")]
    pub(crate) matches: Match,
    /// The collection whose index is asked, instead of the main one
    #[arg(long, value_name = "NAME")]
    pub(crate) collection: Option<String>,
    /// Stops after so many
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct LinksOptions {
    /// The URL, with or without its scheme
    pub(crate) url: String,
    /// Shows only what links to it
    #[arg(long = "in", conflicts_with = "out")]
    pub(crate) incoming: bool,
    /// Shows only what it links to
    #[arg(long)]
    pub(crate) out: bool,
    /// Shows no more than so many of each
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<usize>,
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("asked").required(true).args(["domain", "stats", "export"]))]
pub(crate) struct RegisterOptions {
    /// A domain, or any name or URL of it
    pub(crate) domain: Option<String>,
    /// Counts the domains by state, source, DNS and last label
    #[arg(long)]
    pub(crate) stats: bool,
    /// Writes all of it
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub(crate) export: Option<ExportFormat>,
}

/// What the register can be written as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ExportFormat {
    /// Comma-separated values with a heading
    Csv,
}

#[derive(Debug, Args)]
pub(crate) struct DeltaOptions {
    /// The site: a host, or a URL for what is below it
    pub(crate) site: String,
    /// Leaves out what was captured before this date
    #[arg(long, value_name = "DATE", conflicts_with = "at")]
    pub(crate) from: Option<String>,
    /// Leaves out what was captured after this date
    #[arg(long, value_name = "DATE", conflicts_with = "at")]
    pub(crate) to: Option<String>,
    /// One document of each page: the one that stands for this moment
    #[arg(long, value_name = "DATE")]
    pub(crate) at: Option<String>,
    /// Which document stands for a moment
    #[arg(long, value_enum, default_value_t = DeltaWhich::LastBefore, requires = "at")]
    pub(crate) which: DeltaWhich,
    /// The collection whose index is asked, instead of the main one
    #[arg(long, value_name = "NAME")]
    pub(crate) collection: Option<String>,
}

/// Which document stands for a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DeltaWhich {
    /// The last captured until then
    LastBefore,
    /// The first captured from then on
    FirstAfter,
    /// The one that stood then most likely, by how often the page changes
    Likeliest,
}

#[derive(Debug, Args)]
pub(crate) struct QualityOptions {
    /// A job, a harvest, or a site: a host, or a URL for what is below it
    pub(crate) what: String,
    /// The collection whose index is asked, instead of the main one
    #[arg(long, value_name = "NAME")]
    pub(crate) collection: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ShowOptions {
    /// The URL, with or without its scheme
    pub(crate) url: String,
    /// The last capture until this date, else the first after it [default: the last]
    #[arg(long, value_name = "DATE")]
    pub(crate) at: Option<String>,
    /// Saves the body there; never overwrites
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// The bytes as they were archived: the head too, nothing undone
    #[arg(long, conflicts_with = "json")]
    pub(crate) raw: bool,
    /// The collection whose index is asked, instead of the main one
    #[arg(long, value_name = "NAME")]
    pub(crate) collection: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ServeOptions {
    /// The address to listen on, instead of that in [access]; port 0 chooses one
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) listen: Option<std::net::SocketAddr>,
    /// Serves nothing, and writes into this directory how pywb serves the same archive
    #[arg(long, value_name = "DIR", conflicts_with = "listen")]
    pub(crate) pywb: Option<PathBuf>,
}

/// Which captures a URL stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Match {
    /// Those of this URL
    Exact,
    /// Those of all URLs that begin so
    Prefix,
    /// Those of its host
    Host,
    /// Those of its host and of every name below it
    Domain,
}

#[derive(Debug, Args)]
pub(crate) struct GiveOptions {
    /// The stage
    pub(crate) stage: String,
    /// The files
    #[arg(required_unless_present = "lost")]
    pub(crate) files: Vec<PathBuf>,
    /// Every file that is not in the index yet and on no stage, from a copy of it
    #[arg(long, conflicts_with_all = ["files", "again"])]
    pub(crate) lost: bool,
    /// What kind of thing they are; of a file that is in the archive, what it is there
    #[arg(long)]
    pub(crate) kind: Option<String>,
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

/// One of the two engines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum MoveTo {
    /// NATS JetStream and an S3 store
    Jetstream,
    /// Work directories
    Directories,
}

impl MoveTo {
    pub(crate) fn side(self) -> ecluse_spool::EngineSide {
        match self {
            Self::Jetstream => ecluse_spool::EngineSide::Jetstream,
            Self::Directories => ecluse_spool::EngineSide::Directories,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct MoveOptions {
    /// Where to
    #[arg(long, value_enum, value_name = "ENGINE")]
    pub(crate) to: MoveTo,
    /// The stages; every one when none is named
    #[arg(value_name = "STAGE")]
    pub(crate) stages: Vec<String>,
    #[command(flatten)]
    pub(crate) act: Act,
}

#[derive(Debug, Args)]
pub(crate) struct ExportOptions {
    /// A job, JOB or JOB-HARVEST, or a collection; with --sort-job a collection that has an index of its own
    #[arg(value_name = "JOB|COLLECTION", required_unless_present = "sort_job")]
    pub(crate) what: Option<String>,
    /// As what
    #[arg(
        long = "as",
        value_enum,
        value_name = "FORMAT",
        required_unless_present = "sort_job"
    )]
    pub(crate) format: Option<ExportAs>,
    /// Captures of this URL only
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<String>,
    /// What is meant by it
    #[arg(long = "match", value_enum, default_value_t = Match::Prefix, value_name = "HOW", requires = "url")]
    pub(crate) matches: Match,
    /// Writes there; never overwrites
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Instead: writes a Spark job there that merges the index and the days that wait, and the list of what it reads
    #[arg(long, value_name = "DIR", conflicts_with_all = ["format", "url", "output"])]
    pub(crate) sort_job: Option<PathBuf>,
}

/// What captures can be written as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportAs {
    /// WACZ 1.1.1: the WARC files with index and list of pages, for a viewer
    Wacz,
    /// One WARC file
    Warc,
    /// Lines of an index
    Cdxj,
    /// The words of texts and pages
    Text,
    /// Every capture, with the words of texts and pages
    Xml,
}

#[derive(Debug, Args)]
pub(crate) struct ValidateOptions {
    /// The packages: directories, or WACZ files
    #[arg(required = true, value_name = "PACKAGE")]
    pub(crate) packages: Vec<PathBuf>,
    /// What RFC 8493 only advises against counts as a fault; it does in every package of ours
    #[arg(long)]
    pub(crate) strict: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DepositsOptions {
    /// Each file, instead of sums
    #[arg(long)]
    pub(crate) files: bool,
    /// As a table for other programs
    #[arg(long, value_enum, value_name = "FORMAT", conflicts_with = "json")]
    pub(crate) format: Option<TableFormat>,
}

/// What a table can be written as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TableFormat {
    /// Comma-separated values with a heading
    Csv,
}

#[derive(Debug, Args)]
pub(crate) struct VerifyOptions {
    /// How much to read at most; one copy is always read
    #[arg(long, value_name = "SIZE", default_value = "100 GiB")]
    pub(crate) budget: ecluse_config::Bytes,
    /// Lets delete and clean go on after a mismatch was found
    #[arg(long)]
    pub(crate) release: bool,
    #[command(flatten)]
    pub(crate) act: Act,
}

#[derive(Debug, Args)]
pub(crate) struct RebuildOptions {
    /// What is made anew
    #[arg(value_enum, required_unless_present = "from", conflicts_with = "from")]
    pub(crate) what: Option<Rebuilt>,
    /// The archive is lost: its files, manifest, jobs and index are made from the packages in this directory
    #[arg(long, value_name = "PACKAGES")]
    pub(crate) from: Option<PathBuf>,
    /// Packages that are not valid are left out for good; without this nothing is begun when there is one
    #[arg(long, requires = "from")]
    pub(crate) leave_out_bad: bool,
    #[command(flatten)]
    pub(crate) act: Act,
}

/// What can be made anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Rebuilt {
    /// The database of archive files
    Manifest,
    /// Where each file is, in the manifest and the index, after the archive was moved
    Path,
    /// An index that was lost, from the archive's files
    Index,
    /// The register of domains, from what came into it
    Register,
    /// What is known of the changes of pages, from the index and the stored documents
    Changes,
    /// Links and ranks, from the archive's files
    Links,
}

#[derive(Debug, Args)]
pub(crate) struct RepairOptions {
    /// Names of archive files, or of packages
    #[arg(
        required_unless_present = "all",
        conflicts_with = "all",
        value_name = "FILE"
    )]
    pub(crate) files: Vec<String>,
    /// Every file with a copy, and every package, that was not good when it was last read, or is lost
    #[arg(long)]
    pub(crate) all: bool,
    /// A location or backup that holds nothing is a new disk, not one that is not mounted
    #[arg(long)]
    pub(crate) new_disk: bool,
    #[command(flatten)]
    pub(crate) act: Act,
}

/// Who runs the stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum UnitsFormat {
    Systemd,
    Nomad,
    Kubernetes,
}

#[derive(Debug, Args)]
pub(crate) struct UnitsOptions {
    /// Where the units go
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// Only the stages that [hosts] has there
    #[arg(long, value_name = "NAME")]
    pub(crate) host: Option<String>,
    /// For whom: systemd writes units, nomad a job in JSON, kubernetes manifests in YAML
    #[arg(long, value_enum, default_value_t = UnitsFormat::Systemd)]
    pub(crate) format: UnitsFormat,
    /// The container image with the programs, for nomad and kubernetes
    #[arg(long, value_name = "IMAGE")]
    pub(crate) image: Option<String>,
    /// Where the programs are
    #[arg(long, value_name = "DIR", default_value = crate::units::PROGRAMS)]
    pub(crate) programs: PathBuf,
    /// Starts a stage when something waits for it, instead of at boot
    #[arg(long)]
    pub(crate) path_units: bool,
    /// Writes what each stage may do with the store and the queues, too: policies and users for the servers
    #[arg(long)]
    pub(crate) rights: bool,
}
