//! Names on their way: both forms of each, then what is noted of it.
//!
//! Names come from an iterator and go to a sink, in whatever order they are done. Only those on their way are in memory.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use ecluse_http::is_public;
use ecluse_names::{
    CheckedEvidence, CheckedLine, DnsClass, DnsHint, DnsVerdict, FormEvidence, key_of,
};

use crate::asker::{Answered, Asked, Asker};
use crate::form::{FormCheck, FormNext, FormQuestion};
use crate::hints::HintLists;
use crate::wire::{Question, RecordKind, Reply};

/// The longest name, as text.
const NAME_BYTES: usize = 253;
/// Wildcards that are remembered: lists are sorted, and names below one another lie close together.
const REMEMBERED: usize = 50_000;
/// How long the asker may go on before we look after other things.
const STEP: Duration = Duration::from_millis(100);

/// What is asked of every name.
#[derive(Debug, Clone)]
pub(crate) struct CheckSettings {
    /// Addresses that cannot be reached from outside count as any other.
    pub(crate) allow_private: bool,
    /// Whether a random label beside a form has the same addresses.
    pub(crate) wildcards: bool,
    /// Its name servers.
    pub(crate) name_servers: bool,
}

/// A name to be checked.
#[derive(Debug, Clone)]
pub(crate) struct NameToCheck {
    /// Comes back with the result.
    pub(crate) number: u64,
    pub(crate) name: String,
    /// What is known of it already: only what is not settled is asked again.
    pub(crate) before: Option<CheckedLine>,
}

/// Why a check ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum CheckEnd {
    /// Every name is done.
    Done,
    /// It was asked to stop.
    Stopped,
    /// No resolver is there; in words.
    NoResolver(String),
}

/// Tells whether more can be found out about a name.
pub(crate) fn is_settled(line: &CheckedLine) -> bool {
    let is_settled =
        |class: DnsClass| class.verdict() != DnsVerdict::Unknown || class == DnsClass::BadName;
    is_settled(line.class) && line.www.is_none_or(is_settled)
}

/// Checks names.
pub(crate) struct NameChecker<'a> {
    asker: &'a mut Asker,
    settings: &'a CheckSettings,
    hints: &'a HintLists,
    tasks: Vec<Option<NameTask>>,
    free: Vec<u32>,
    wildcards: HashMap<(String, RecordKind), Wildcard>,
    done: Vec<(u64, CheckedLine)>,
    /// The last random label.
    label: u64,
}

struct NameTask {
    number: u64,
    name: String,
    /// What was found in the round before.
    before: Option<CheckedLine>,
    /// The name itself, and with `www.`.
    forms: [Option<FormCheck>; 2],
    hints: BTreeSet<DnsHint>,
    ns: Vec<String>,
    /// Questions that are not answered.
    open: u8,
    /// Both forms are known, and what comes after has been asked.
    has_asked_more: bool,
}

/// What a random label below a name has.
enum Wildcard {
    /// It is being asked: who waits for it, and with which form.
    Asked(Vec<(u32, usize)>),
    Known(Vec<IpAddr>),
}

/// What a question is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Form(usize),
    NameServers,
    Wildcard(usize),
}

impl<'a> NameChecker<'a> {
    pub(crate) fn new(
        asker: &'a mut Asker,
        settings: &'a CheckSettings,
        hints: &'a HintLists,
    ) -> Self {
        Self {
            asker,
            settings,
            hints,
            tasks: Vec::new(),
            free: Vec::new(),
            wildcards: HashMap::new(),
            done: Vec::new(),
            label: random_number(),
        }
    }

    /// Checks all names. `next` gives one, or none for now; `sink` takes what is done and says how many are still to come;
    /// `is_stopped` is asked often.
    pub(crate) fn run<Fault: From<io::Error>>(
        &mut self,
        next: &mut dyn FnMut() -> Result<Option<NameToCheck>, Fault>,
        sink: &mut dyn FnMut(u64, CheckedLine) -> Result<(), Fault>,
        is_stopped: &mut dyn FnMut() -> bool,
    ) -> Result<CheckEnd, Fault> {
        loop {
            if is_stopped() {
                return Ok(CheckEnd::Stopped);
            }
            if let Some(why) = self.asker.is_dead() {
                return Ok(CheckEnd::NoResolver(why));
            }
            let mut is_out = false;
            while self.has_room() {
                match next()? {
                    Some(name) => self.begin(name),
                    None => {
                        is_out = true;
                        break;
                    }
                }
            }
            self.asker.go_on(STEP)?;
            while let Some(answered) = self.asker.take() {
                self.take(answered);
            }
            for (number, line) in std::mem::take(&mut self.done) {
                sink(number, line)?;
            }
            let is_idle = self.tasks.len() == self.free.len();
            if is_out && is_idle {
                // A result may have made another name ready.
                match next()? {
                    Some(name) => self.begin(name),
                    None => {
                        let unheard = self.asker.is_unheard();
                        return Ok(unheard.map_or(CheckEnd::Done, CheckEnd::NoResolver));
                    }
                }
            }
        }
    }

    /// Tells whether another name may be begun. Names that wait for a wildcard ask nothing themselves; without a limit of their
    /// own there are as many of them as come while one answer is late.
    fn has_room(&self) -> bool {
        let names = self.tasks.len() - self.free.len();
        self.asker.has_room() && names < self.asker.most_in_flight() * 2
    }

    fn begin(&mut self, to_check: NameToCheck) {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => {
                self.tasks.push(None);
                u32::try_from(self.tasks.len() - 1).expect("names on their way are bounded")
            }
        };
        let names = forms_of(&to_check.name);
        let mut task = NameTask {
            number: to_check.number,
            forms: [None, None],
            hints: BTreeSet::new(),
            ns: Vec::new(),
            open: 0,
            has_asked_more: false,
            name: to_check.name,
            before: to_check.before,
        };
        let mut questions = Vec::new();
        for (at, name) in names.into_iter().enumerate() {
            let Some(name) = name else { continue };
            let known = task.before.as_ref().and_then(|line| known_form(line, at));
            task.forms[at] = Some(match known {
                Some(form) => form,
                None => {
                    let (form, question) = FormCheck::begin();
                    task.open += 1;
                    questions.push((at, name, question));
                    form
                }
            });
        }
        self.tasks[slot as usize] = Some(task);
        for (at, name, question) in questions {
            self.ask_form(slot, at, &name, question);
        }
        self.go_on_with(slot);
    }

    fn ask_form(&mut self, slot: u32, form: usize, name: &str, asked: FormQuestion) {
        match Question::new(name, asked.kind) {
            Some(question) => self.asker.ask(Asked {
                tag: tag(slot, Purpose::Form(form)),
                question,
                except: asked.except,
                rather: asked.rather,
            }),
            None => {
                if let Some(task) = &mut self.tasks[slot as usize] {
                    let bad = FormCheck::known(DnsClass::BadName, FormEvidence::default());
                    task.forms[form] = Some(bad);
                    task.open -= 1;
                }
            }
        }
    }

    fn take(&mut self, answered: Answered) {
        let (slot, purpose) = untag(answered.tag);
        match purpose {
            Purpose::Form(form) => self.take_form(slot, form, answered.reply, answered.by),
            Purpose::NameServers => {
                if let Some(task) = &mut self.tasks[slot as usize] {
                    if let Reply::Found(records, _) = answered.reply {
                        task.ns = records.ns;
                    }
                    task.open -= 1;
                }
                self.go_on_with(slot);
            }
            Purpose::Wildcard(form) => self.take_wildcard(slot, form, answered.reply),
        }
    }

    fn take_form(&mut self, slot: u32, at: usize, reply: Reply, by: usize) {
        let Some(task) = &mut self.tasks[slot as usize] else {
            return;
        };
        let Some(form) = &mut task.forms[at] else {
            return;
        };
        match form.take(reply, by) {
            FormNext::Ask(question) => {
                let name = forms_of(&task.name)[at].take();
                self.ask_form(slot, at, &name.unwrap_or_default(), question);
            }
            FormNext::Done => {
                if let Some(resolver) = form.wrongly_denied_by() {
                    self.asker.was_wrong(resolver);
                }
                task.open -= 1;
                self.go_on_with(slot);
            }
        }
    }

    /// Asks what comes after the forms, or ends.
    fn go_on_with(&mut self, slot: u32) {
        let Some(task) = &mut self.tasks[slot as usize] else {
            return;
        };
        if task.open > 0 {
            return;
        }
        if !task.has_asked_more {
            task.has_asked_more = true;
            // Until all is asked: an answer may be known at once.
            task.open += 1;
            if self.settings.wildcards {
                self.ask_wildcards(slot);
            }
            if self.settings.name_servers {
                self.ask_name_servers(slot);
            }
            if let Some(task) = &mut self.tasks[slot as usize] {
                task.open -= 1;
                if task.open > 0 {
                    return;
                }
            }
        }
        if let Some(task) = self.tasks[slot as usize].take() {
            self.free.push(slot);
            let number = task.number;
            self.done.push((number, self.line_of(task)));
        }
    }

    fn ask_wildcards(&mut self, slot: u32) {
        for at in 0..2 {
            let Some(task) = &mut self.tasks[slot as usize] else {
                return;
            };
            let Some(key) = task.wildcard_key(at) else {
                continue;
            };
            task.open += 1;
            match self.wildcards.get_mut(&key) {
                Some(Wildcard::Asked(waiting)) => waiting.push((slot, at)),
                Some(Wildcard::Known(addresses)) => {
                    let addresses = addresses.clone();
                    self.compare(slot, at, &addresses);
                }
                None => self.ask_wildcard(slot, at, key),
            }
        }
    }

    fn ask_wildcard(&mut self, slot: u32, form: usize, key: (String, RecordKind)) {
        self.label = self.label.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let name = format!("{:016x}.{}", self.label, key.0);
        let Some(question) = Question::new(&name, key.1).filter(|_| name.len() <= NAME_BYTES)
        else {
            self.compare(slot, form, &[]);
            return;
        };
        if self.wildcards.len() >= REMEMBERED {
            self.wildcards
                .retain(|_, wildcard| matches!(wildcard, Wildcard::Asked(_)));
        }
        self.wildcards
            .insert(key, Wildcard::Asked(vec![(slot, form)]));
        self.asker.ask(Asked {
            tag: tag(slot, Purpose::Wildcard(form)),
            question,
            except: None,
            rather: None,
        });
    }

    /// Takes in what a random label has; whoever asked waits for it, so it is still there.
    fn take_wildcard(&mut self, slot: u32, form: usize, reply: Reply) {
        let task = self.tasks[slot as usize].as_ref();
        let Some(key) = task.and_then(|task| task.wildcard_key(form)) else {
            return;
        };
        let addresses = match reply {
            Reply::Found(records, _) => addresses_of(&records.a, &records.aaaa),
            _ => Vec::new(),
        };
        let known = Wildcard::Known(addresses.clone());
        if let Some(Wildcard::Asked(waiting)) = self.wildcards.insert(key, known) {
            for (slot, form) in waiting {
                self.compare(slot, form, &addresses);
                self.go_on_with(slot);
            }
        }
    }

    /// Notes whether a random label has an address of the form.
    fn compare(&mut self, slot: u32, form: usize, wildcard: &[IpAddr]) {
        let Some(task) = &mut self.tasks[slot as usize] else {
            return;
        };
        task.open -= 1;
        let Some(evidence) = task.forms[form].as_ref().map(FormCheck::evidence) else {
            return;
        };
        let own = addresses_of(&evidence.a, &evidence.aaaa);
        if own.iter().any(|address| wildcard.contains(address)) {
            let is_www = form == 1 || task.name.starts_with("www.");
            task.hints.insert(match is_www {
                true => DnsHint::WildcardWww,
                false => DnsHint::WildcardApex,
            });
        }
    }

    fn ask_name_servers(&mut self, slot: u32) {
        let Some(task) = &mut self.tasks[slot as usize] else {
            return;
        };
        let classes = task.forms.iter().flatten().filter_map(FormCheck::class);
        let is_there = classes
            .map(DnsClass::verdict)
            .any(|verdict| verdict == DnsVerdict::Present);
        let question = Question::new(&task.name, RecordKind::Ns);
        if let Some(question) = question.filter(|_| is_there) {
            task.open += 1;
            self.asker.ask(Asked {
                tag: tag(slot, Purpose::NameServers),
                question,
                except: None,
                rather: None,
            });
        }
    }

    fn line_of(&self, task: NameTask) -> CheckedLine {
        let NameTask {
            name,
            before,
            forms,
            mut hints,
            ns,
            ..
        } = task;
        let mut classes = [None, None];
        let mut evidence = [FormEvidence::default(), FormEvidence::default()];
        for (at, form) in forms.into_iter().enumerate() {
            let Some(form) = form else { continue };
            let class = form.class().unwrap_or(DnsClass::Timeout);
            let mut rests_on = form.into_evidence();
            classes[at] = Some(self.reached(class, &rests_on));
            // Silence takes nothing back of what somebody said in a round before.
            let said = before.as_ref().and_then(|line| form_of(line, at));
            if let (DnsClass::Timeout, Some((class, told))) = (class, said) {
                classes[at] = Some(class);
                rests_on = told.clone();
                rests_on.ns.clear();
            }
            evidence[at] = rests_on;
        }
        evidence[0].ns = ns;
        for form in &evidence {
            let has_address = !form.a.is_empty() || !form.aaaa.is_empty();
            if has_address && !form.cname.is_empty() {
                hints.insert(DnsHint::Cname);
            }
            hints.extend(self.hints.of(form));
        }
        let [class, www] = classes;
        let [own, other] = evidence;
        // A name that begins so is that form itself.
        let (apex, www_evidence) = match name.starts_with("www.") {
            true => (FormEvidence::default(), own),
            false => (own, other),
        };
        CheckedLine {
            key: key_of(&name),
            class: class.unwrap_or(DnsClass::BadName),
            www,
            hints,
            evidence: CheckedEvidence {
                apex,
                www: www_evidence,
                ..CheckedEvidence::default()
            },
            name,
        }
    }

    /// Says so where no address can be reached.
    fn reached(&self, class: DnsClass, evidence: &FormEvidence) -> DnsClass {
        let addresses = addresses_of(&evidence.a, &evidence.aaaa);
        let is_private = !self.settings.allow_private && !addresses.iter().copied().any(is_public);
        match class.has_address() && is_private {
            true => DnsClass::Private,
            false => class,
        }
    }
}

impl NameTask {
    /// What a random label is asked for beside a form that has an address.
    fn wildcard_key(&self, form: usize) -> Option<(String, RecordKind)> {
        let evidence = self.forms[form].as_ref()?.evidence();
        let kind = match (evidence.a.is_empty(), evidence.aaaa.is_empty()) {
            (false, _) => RecordKind::A,
            (true, false) => RecordKind::Aaaa,
            (true, true) => return None,
        };
        let name = forms_of(&self.name)[form].take()?;
        let (_, above) = name.split_once('.')?;
        Some((above.to_owned(), kind))
    }
}

/// The name itself, and with `www.` where that can be asked.
fn forms_of(name: &str) -> [Option<String>; 2] {
    let www = format!("www.{name}");
    let has_www = !name.starts_with("www.") && www.len() <= NAME_BYTES;
    [Some(name.to_owned()), has_www.then_some(www)]
}

/// What a line says of a form of its name.
fn form_of(line: &CheckedLine, form: usize) -> Option<(DnsClass, &FormEvidence)> {
    let is_www = line.name.starts_with("www.");
    Some(match (form, is_www) {
        (0, true) => (line.class, &line.evidence.www),
        (0, false) => (line.class, &line.evidence.apex),
        _ => (line.www?, &line.evidence.www),
    })
}

/// What is known of a form from before, if it is settled.
fn known_form(line: &CheckedLine, form: usize) -> Option<FormCheck> {
    let (class, evidence) = form_of(line, form)?;
    let is_known = class.verdict() != DnsVerdict::Unknown || class == DnsClass::BadName;
    let class = match class {
        // It is told again from the addresses.
        DnsClass::Private if evidence.a.is_empty() => DnsClass::OkAaaa,
        DnsClass::Private if evidence.aaaa.is_empty() => DnsClass::OkA,
        DnsClass::Private => DnsClass::OkBoth,
        class => class,
    };
    let mut evidence = evidence.clone();
    evidence.ns.clear();
    is_known.then(|| FormCheck::known(class, evidence))
}

fn addresses_of(a: &[std::net::Ipv4Addr], aaaa: &[std::net::Ipv6Addr]) -> Vec<IpAddr> {
    let a = a.iter().map(|address| IpAddr::V4(*address));
    let aaaa = aaaa.iter().map(|address| IpAddr::V6(*address));
    a.chain(aaaa).collect()
}

fn tag(slot: u32, purpose: Purpose) -> u64 {
    let purpose = match purpose {
        Purpose::Form(form) => form as u64,
        Purpose::Wildcard(form) => 2 + form as u64,
        Purpose::NameServers => 4,
    };
    u64::from(slot) << 8 | purpose
}

fn untag(tag: u64) -> (u32, Purpose) {
    let purpose = match tag & 0xff {
        form @ (0 | 1) => Purpose::Form(form as usize),
        form @ (2 | 3) => Purpose::Wildcard(form as usize - 2),
        _ => Purpose::NameServers,
    };
    ((tag >> 8) as u32, purpose)
}

fn random_number() -> u64 {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).expect("the system gives random bytes");
    u64::from_le_bytes(bytes)
}
