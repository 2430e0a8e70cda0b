//! What is served: each address, and who answers it.

use std::cell::Cell;
use std::path::PathBuf;
use std::sync::Arc;

use ecluse_cdx::{Capture, LookupError, cdxj};
use ecluse_config::{AccessRule, AccessSettings};
use hyper::header::{self, HeaderValue};
use hyper::{Method, StatusCode};
use tokio::sync::Semaphore;

use crate::archive::{ArchiveError, OpenGeneration, ReadingArchive};
use crate::capture_list::{CapturesAround, IndexedCapture, captures_around};
use crate::cdx_query::{CdxAnswer, CdxLimits, CdxOutput, CdxQuery};
use crate::figures::{AccessFigures, RequestKind};
use crate::link_policy::{LinkPolicy, split_policy};
use crate::loader::{LoadError, LoadedCapture, load};
use crate::locations::Locations;
use crate::memento::{MementoAddresses, TimeMapKind, time_map};
use crate::moment::Moment;
use crate::pages::Pages;
use crate::proxy::ProxyMode;
use crate::proxy_ca::CaError;
use crate::query_string::{Parameters, decode};
use crate::reader::{Readers, TokensError, WrongToken};
use crate::record::RecordError;
use crate::replay_address::{ReplayAddress, ReplayPath};
use crate::reply::{Asked, Reply, put, redirect, whole};
use crate::rules::{AccessRules, RulesError};
use crate::url_text::{key_of, safe_url, with_scheme};
use crate::wanted::WantedList;

/// Bodies that are read in pieces at once.
const STREAMS: usize = 64;
/// The field that tells staff which rule keeps something from them.
const RULE: header::HeaderName = header::HeaderName::from_static("x-ecluse-rule");
/// A longer URL is not looked for.
const LONGEST_URL: usize = 8 << 10;

/// An archive with everything that is needed to answer for it.
pub struct AccessSite {
    pub(crate) archive: ReadingArchive,
    pub(crate) root: PathBuf,
    pub(crate) settings: AccessSettings,
    pub(crate) figures: AccessFigures,
    pub(crate) pages: Pages,
    pub(crate) rules: AccessRules,
    pub(crate) readers: Readers,
    pub(crate) proxy: Option<Arc<ProxyMode>>,
    pub(crate) wanted: Option<WantedList>,
    pub(crate) streams: Arc<Semaphore>,
    pub(crate) locations: Arc<Locations>,
    /// Where the changes of pages are told.
    pub(crate) changes: Option<PathBuf>,
}

/// Why an archive is not served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SiteError {
    /// The rules of access cannot be read.
    #[error(transparent)]
    Rules(#[from] RulesError),
    /// The tokens of readers cannot be read.
    #[error(transparent)]
    Tokens(#[from] TokensError),
    /// Proxy mode has no certificates to show.
    #[error(transparent)]
    Ca(#[from] CaError),
    /// The list of wanted URLs cannot be kept.
    #[error("cannot keep {}: {source}", path.display())]
    Wanted {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

/// Why something is not shown.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    /// What to tell, for a person: a word of the pages.
    pub(crate) reason: &'static str,
    /// What exactly was wrong.
    pub(crate) detail: String,
    /// The rule of access that says so; for staff.
    pub(crate) rule: Option<String>,
}

impl Refusal {
    pub(crate) fn new(status: StatusCode, reason: &'static str, detail: impl ToString) -> Self {
        Self {
            status,
            reason,
            detail: detail.to_string(),
            rule: None,
        }
    }

    /// Names the rule that refuses.
    pub(crate) fn by_rule(self, rule: Option<String>) -> Self {
        Self { rule, ..self }
    }

    pub(crate) fn bad_request(detail: impl ToString) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_request", detail)
    }

    pub(crate) fn not_found(detail: impl ToString) -> Self {
        Self::new(StatusCode::NOT_FOUND, "no_page", detail)
    }

    pub(crate) fn no_download(detail: impl ToString) -> Self {
        Self::new(StatusCode::FORBIDDEN, "no_download", detail)
            .by_rule(Some("access.download = \"staff\"".to_owned()))
    }

    pub(crate) fn busy() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "busy", "")
    }

    pub(crate) fn unreadable(error: std::io::Error) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "unreadable", error)
    }
}

impl From<LookupError> for Refusal {
    fn from(error: LookupError) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "no_index", error)
    }
}

impl From<ArchiveError> for Refusal {
    fn from(error: ArchiveError) -> Self {
        match error {
            ArchiveError::NoCollection(_) => {
                Self::new(StatusCode::NOT_FOUND, "no_collection", error)
            }
            ArchiveError::NoIndex(_)
            | ArchiveError::Directory(_)
            | ArchiveError::Lookup(_)
            | ArchiveError::Damaged { .. }
            | ArchiveError::Stale { .. } => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "no_index", error)
            }
        }
    }
}

impl From<LoadError> for Refusal {
    fn from(error: LoadError) -> Self {
        match error {
            LoadError::ReadingArchive(error) => error.into(),
            LoadError::Lookup(error) => error.into(),
            // A disk may come back; a file that is not what was indexed does not mend itself.
            LoadError::Record(
                error @ (RecordError::NoCopy(_) | RecordError::Hung(_) | RecordError::Read { .. }),
            ) => Self::new(StatusCode::SERVICE_UNAVAILABLE, "unreadable", error),
            LoadError::Record(error) => {
                Self::new(StatusCode::INTERNAL_SERVER_ERROR, "damaged", error)
            }
            LoadError::NoOriginal { .. } => Self::new(StatusCode::NOT_FOUND, "no_original", error),
        }
    }
}

/// A capture found for a moment.
pub(crate) struct Resolved {
    pub(crate) loaded: LoadedCapture,
    pub(crate) around: CapturesAround,
}

impl AccessSite {
    /// Makes the site of an archive. `root` is where relative places begin, `index` the directory of the indexes.
    ///
    /// # Errors
    /// When the rules of access or the tokens cannot be read: nothing is shown without them. When proxy mode has no place for its CA
    /// or its list.
    pub fn new(
        root: PathBuf,
        index: &std::path::Path,
        settings: AccessSettings,
    ) -> Result<Self, SiteError> {
        let files = settings.rules.iter().map(|path| root.join(path)).collect();
        let tokens = settings.tokens.as_ref().map(|path| root.join(path));
        let proxy = match (settings.proxy, &settings.proxy_ca) {
            (None, _) => None,
            (Some(_), None) => return Err(CaError::NoDirectory.into()),
            (Some(_), Some(path)) => Some(Arc::new(ProxyMode::open(&root.join(path))?)),
        };
        let wanted = settings.wanted.as_ref().map(|path| {
            let path = root.join(path);
            WantedList::open(path.clone(), settings.wanted_lines)
                .map_err(|source| SiteError::Wanted { path, source })
        });
        let readers = usize::try_from(settings.readers).unwrap_or(1);
        Ok(Self {
            proxy,
            wanted: wanted.transpose()?,
            archive: ReadingArchive::new(&root.join(index), &settings.main),
            rules: AccessRules::open(files, settings.default_rule, settings.embargo.clone())?,
            readers: Readers::open(&settings, tokens)?,
            root,
            figures: AccessFigures::default(),
            changes: None,
            pages: Pages::new(),
            streams: Arc::new(Semaphore::new(STREAMS)),
            locations: Arc::new(Locations::new(readers)),
            settings,
        })
    }

    /// Lets the calendar know where the changes of pages are told; without it, it shows every capture.
    pub fn with_changes(mut self, changes: &std::path::Path) -> Self {
        self.changes = Some(self.root.join(changes));
        self
    }

    /// Returns what the reader chose, else what the settings say.
    pub(crate) fn policy(&self, question: &Question<'_>) -> LinkPolicy {
        let (_, chosen) = split_policy(question.collection);
        chosen.unwrap_or(LinkPolicy::Time(self.settings.policy))
    }

    /// Answers one question.
    pub(crate) fn answer(&self, mut asked: Asked) -> Reply {
        let reader = self
            .readers
            .reader(asked.peer, &asked.headers, header::AUTHORIZATION);
        let (kind, answered) = match reader {
            Ok(reader) => {
                asked.reader = reader;
                self.route(&asked)
            }
            Err(WrongToken) => {
                let refusal = Refusal::new(StatusCode::UNAUTHORIZED, "wrong_token", "");
                (RequestKind::Other, Err(refusal))
            }
        };
        let asked = &asked;
        let reply = answered.unwrap_or_else(|refusal| self.refuse(asked, kind, &refusal));
        self.figures.count(kind, reply.status());
        reply
    }

    fn route(&self, asked: &Asked) -> (RequestKind, Result<Reply, Refusal>) {
        if !matches!(asked.method, Method::GET | Method::HEAD) {
            let refusal = Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "method", &asked.method);
            return (RequestKind::Other, Err(refusal));
        }
        let path = asked.path.as_str();
        let own = match path {
            "/" => Some(self.home(asked)),
            "/robots.txt" => Some(Ok(self.robots())),
            "/healthz" => Some(Ok(self.health())),
            "/metrics" => Some(Ok(self.metrics())),
            "/search" => Some(self.search(asked)),
            "/settings" => Some(self.choose_language(asked)),
            "/compare" => Some(self.compare(asked)),
            "/favicon.ico" => Some(Ok(whole(StatusCode::NO_CONTENT, "image/x-icon", ""))),
            _ => match path.strip_prefix("/wabac/") {
                Some(name) if self.has_wabac() => Some(self.wabac(asked, name)),
                _ => path.strip_prefix("/static/").map(|name| self.asset(name)),
            },
        };
        if let Some(own) = own {
            return (RequestKind::Page, own);
        }
        let Some((collection, rest)) = path[1..].split_once('/') else {
            let to = format!("{path}/");
            let known = self.archive.collections();
            return match known.iter().any(|name| *name == path[1..]) {
                true => (
                    RequestKind::Page,
                    Ok(redirect(StatusCode::MOVED_PERMANENTLY, &to)),
                ),
                false => (RequestKind::Other, self.lost(asked)),
            };
        };
        self.route_collection(asked, collection, rest)
    }

    fn route_collection(
        &self,
        asked: &Asked,
        collection: &str,
        rest: &str,
    ) -> (RequestKind, Result<Reply, Refusal>) {
        let generation = match self.archive.current(collection) {
            Ok(generation) => generation,
            Err(ArchiveError::NoCollection(_)) => return (RequestKind::Other, self.lost(asked)),
            Err(error) => return (RequestKind::Other, Err(error.into())),
        };
        let question = Question {
            asked,
            collection,
            generation,
        };
        let query = asked.query.as_deref();
        // The URL is what was sent, its own question mark included.
        let with_query = |url: &str| match query {
            Some(query) => format!("{url}?{query}"),
            None => url.to_owned(),
        };
        match rest {
            "" => return (RequestKind::Page, self.home(asked)),
            "cdx" | "index" => return (RequestKind::Cdx, self.cdx(&question)),
            _ => {}
        }
        if let Some(rest) = rest.strip_prefix("timemap/") {
            let answered = match rest.split_once('/') {
                Some((kind, url)) => self.time_map(&question, kind, &with_query(url)),
                None => Err(Refusal::not_found(&asked.path)),
            };
            return (RequestKind::TimeMap, answered);
        }
        if let Some(url) = rest.strip_prefix("timegate/") {
            return (
                RequestKind::TimeGate,
                self.time_gate(&question, &with_query(url)),
            );
        }
        if let Some(rest) = rest.strip_prefix("diff/") {
            let answered = self.page_delta(&question, &with_query(rest));
            return (RequestKind::Page, answered);
        }
        if let Some(rest) = rest.strip_prefix("site/") {
            let answered = self.site_delta(&question, &with_query(rest));
            return (RequestKind::Page, answered);
        }
        if let Some(name) = rest.strip_prefix("path/") {
            return (RequestKind::Path, self.places(&question, name));
        }
        // Two stars: those with small changes too.
        if let Some((digits, url)) = rest.split_once("*/")
            && let year = digits.strip_suffix('*').unwrap_or(digits)
            && year.len() <= 4
            && year.bytes().all(|byte| byte.is_ascii_digit())
        {
            let is_all = year != digits;
            let answered = self.calendar(&question, year, is_all, &with_query(url));
            return (RequestKind::Page, answered);
        }
        let whole = with_query(rest);
        match ReplayPath::parse(&whole) {
            Some(path) => (RequestKind::Replay, self.replay(&question, &path)),
            None => (RequestKind::TimeGate, self.time_gate(&question, &whole)),
        }
    }

    /// Answers an address that is none of ours: a page whose link was not rewritten may have meant one of its own.
    fn lost(&self, asked: &Asked) -> Result<Reply, Refusal> {
        let refusal = || Refusal::not_found(&asked.path);
        let referer = asked.header(header::REFERER).ok_or_else(refusal)?;
        let rest = referer
            .strip_prefix(asked.base.as_str())
            .ok_or_else(refusal)?;
        let (collection, rest) = rest
            .strip_prefix('/')
            .and_then(|rest| rest.split_once('/'))
            .ok_or_else(refusal)?;
        let path = ReplayPath::parse(rest).ok_or_else(refusal)?;
        let moment = Moment::first_of(path.digits).ok_or_else(refusal)?;
        let address = ReplayAddress {
            collection: &format!("/{collection}"),
            moment,
            modifier: path.modifier,
            url: with_scheme(path.url),
        };
        let link = match &asked.query {
            Some(query) => format!("{}?{query}", asked.path),
            None => asked.path.clone(),
        };
        let modifier = if path.modifier.is_empty() {
            "mp_"
        } else {
            path.modifier
        };
        let to = address.rewritten(&link, modifier);
        // What leads back to itself would lead there for ever.
        if to == link {
            return Err(refusal());
        }
        let mut reply = redirect(StatusCode::TEMPORARY_REDIRECT, &to);
        put(&mut reply, header::ACCESS_CONTROL_ALLOW_ORIGIN, "*");
        Ok(reply)
    }

    fn robots(&self) -> Reply {
        // Robots that copy archives of copies help nobody; the first page may be found.
        whole(
            StatusCode::OK,
            "text/plain; charset=utf-8",
            "User-agent: *\nAllow: /$\nDisallow: /\n",
        )
    }

    fn health(&self) -> Reply {
        let (status, text) = match self.archive.check(self.archive.main()) {
            Ok(number) => (
                StatusCode::OK,
                serde_json::json!({"schema": 1, "status": "ok", "generation": number}),
            ),
            Err(error) => (
                StatusCode::SERVICE_UNAVAILABLE,
                serde_json::json!({"schema": 1, "status": "no index", "reason": error.to_string()}),
            ),
        };
        whole(status, "application/json", text.to_string())
    }

    fn metrics(&self) -> Reply {
        let generation = self.archive.current(self.archive.main());
        let text = self.figures.render(generation.ok().map(|open| open.number));
        let media_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
        whole(StatusCode::OK, media_type, text)
    }

    pub(crate) fn cdx_limits(&self) -> CdxLimits {
        CdxLimits {
            scan_lines: self.settings.scan_lines,
            answer_bytes: usize::try_from(self.settings.answer.get()).unwrap_or(usize::MAX),
            page_lines: self.settings.page_lines,
        }
    }

    fn cdx(&self, question: &Question<'_>) -> Result<Reply, Refusal> {
        let asked = question.asked;
        let parameters = Parameters::parse(asked.query.as_deref().unwrap_or_default());
        let mut query = CdxQuery::parse(&parameters).map_err(Refusal::bad_request)?;
        if !asked.reader.may_download {
            query = query
                .without_places()
                .map_err(|field| Refusal::no_download(format!("field {field}")))?;
        }
        let limits = self.cdx_limits();
        let prefix = question.prefix();
        let link = |capture: &Capture<'_>| {
            let moment = crate::capture_list::moment_of(capture.time.as_str().as_bytes());
            let url = capture.url.as_deref().unwrap_or_default();
            let address = MementoAddresses {
                prefix: &prefix,
                url,
            }
            .memento(moment, "");
            format!(
                "<{address}>; rel=\"memento\"; datetime=\"{}\"",
                moment.http_date()
            )
        };
        let hidden_by = Cell::new(None);
        let may_list = |line: &[u8]| match self.rules.keeps_from(line, &asked.reader) {
            None => true,
            Some(rule) => {
                hidden_by.set(Some(rule));
                false
            }
        };
        if query.shows_page_count {
            let pages = query.count_pages(&question.generation, &limits, &may_list)?;
            let pages = pages.ok_or_else(|| {
                Refusal::bad_request("too many lines to count their pages: go on by resumeKey=")
            })?;
            let body = match query.output {
                CdxOutput::Json => format!("{{\"pages\": {pages}, \"pageSize\": 1}}\n"),
                CdxOutput::Cdxj | CdxOutput::Text | CdxOutput::Link => format!("{pages}\n"),
            };
            return Ok(whole(StatusCode::OK, "text/plain; charset=utf-8", body));
        }
        let mut answer = query.answer(&question.generation, &limits, &may_list, &link)?;
        if query.shows_resume_key
            && let Some(key) = &answer.resume
        {
            answer
                .body
                .extend_from_slice(format!("\n{key}\n").as_bytes());
        }
        let media_type = match query.output {
            CdxOutput::Cdxj => "text/x-cdxj",
            CdxOutput::Json => "text/x-ndjson",
            CdxOutput::Text => "text/plain; charset=utf-8",
            CdxOutput::Link => "application/link-format",
        };
        let CdxAnswer {
            body,
            resume,
            is_cut,
            ..
        } = answer;
        let mut reply = whole(StatusCode::OK, media_type, body);
        if let Some(key) = resume.filter(|_| is_cut) {
            self.tell_cut(question, &mut reply, &key);
        } else if is_cut {
            let name = header::HeaderName::from_static("x-ecluse-cut");
            put(&mut reply, name, "true");
        }
        if asked.reader.is_staff
            && let Some(rule) = hidden_by.take()
        {
            put(&mut reply, RULE, &rule);
        }
        Ok(reply)
    }

    /// Says in the head that an answer ended at a bound, and how to go on.
    fn tell_cut(&self, question: &Question<'_>, reply: &mut Reply, key: &str) {
        let query = question.asked.query.as_deref().unwrap_or_default();
        let others = query
            .split('&')
            .filter(|pair| !pair.starts_with("resumeKey="));
        let others: Vec<&str> = others.collect();
        let (prefix, others) = (question.prefix(), others.join("&"));
        let next = format!("<{prefix}/cdx?{others}&resumeKey={key}>; rel=\"next\"");
        put(reply, header::LINK, &next);
        put(
            reply,
            header::HeaderName::from_static("x-ecluse-cut"),
            "true",
        );
    }

    fn places(&self, question: &Question<'_>, name: &str) -> Result<Reply, Refusal> {
        let name = decode(name, false);
        if !question.asked.reader.may_download {
            return Err(Refusal::no_download(&name));
        }
        let places = question.generation.places(&name)?;
        if places.is_empty() {
            return Err(Refusal::not_found(&name));
        }
        let body = serde_json::json!({"filename": name, "places": places});
        Ok(whole(
            StatusCode::OK,
            "application/json",
            format!("{body}\n"),
        ))
    }

    fn time_map(&self, question: &Question<'_>, kind: &str, url: &str) -> Result<Reply, Refusal> {
        let kind = TimeMapKind::of(kind)
            .ok_or_else(|| Refusal::bad_request(format!("output={kind} not supported")))?;
        let url = checked_url(url)?;
        let captures = self.captures_of(question, &url)?;
        if captures.is_empty() {
            let around = self.around(question, &url, Moment::last_of("9").expect("digits"))?;
            return Err(self.absent(&url).by_rule(around.hidden_by));
        }
        let prefix = question.prefix();
        let addresses = MementoAddresses {
            prefix: &prefix,
            url: &url,
        };
        let body = time_map(kind, &addresses, &captures);
        let mut reply = whole(StatusCode::OK, kind.media_type(), body);
        put(&mut reply, header::LINK, &addresses.common_links());
        Ok(reply)
    }

    /// Returns all captures of a URL that may be listed.
    pub(crate) fn captures_of(
        &self,
        question: &Question<'_>,
        url: &str,
    ) -> Result<Vec<IndexedCapture>, Refusal> {
        let key = key_of(url).ok_or_else(|| Refusal::bad_request(format!("no key for {url}")))?;
        let range = ecluse_cdx::KeyRange::exact(&key);
        let access = self.rules.of_key(&key, &question.asked.reader);
        let mut lines = question.generation.lines.range(range)?;
        let mut captures = Vec::new();
        let mut seen = 0;
        while seen < self.settings.scan_lines
            && let Some(line) = lines.next_line()?
        {
            seen += 1;
            captures.extend(
                cdxj::parse(line)
                    .ok()
                    .and_then(|line| IndexedCapture::of(&line))
                    .filter(|capture| access.at(capture.moment()) != AccessRule::Exclude),
            );
        }
        Ok(captures)
    }

    fn time_gate(&self, question: &Question<'_>, url: &str) -> Result<Reply, Refusal> {
        let asked = question.asked;
        let url = checked_url(url)?;
        // Without a date, or with an empty one, the last is meant.
        let date = asked.header("accept-datetime");
        let wanted = match date.filter(|date| !date.trim().is_empty()) {
            Some(date) => Moment::from_http_date(date).ok_or_else(|| {
                Refusal::bad_request(format!("Accept-Datetime: {date} is no date of HTTP"))
            })?,
            None => Moment::last_of("9").expect("digits"),
        };
        let around = self.around(question, &url, wanted)?;
        let chosen = around
            .candidates
            .first()
            .ok_or_else(|| self.absent(&url).by_rule(around.hidden_by.clone()))?;
        let prefix = question.prefix();
        let addresses = MementoAddresses {
            prefix: &prefix,
            url: &url,
        };
        let moment = chosen.moment();
        let to = addresses.memento(moment, "mp_");
        let mut reply = redirect(StatusCode::FOUND, &to);
        put(&mut reply, header::VARY, "accept-datetime");
        let links = addresses.links_of(moment, &around, "mp_");
        put(&mut reply, header::LINK, &links);
        Ok(reply)
    }

    /// Looks for the captures of a URL around a moment.
    pub(crate) fn around(
        &self,
        question: &Question<'_>,
        url: &str,
        wanted: Moment,
    ) -> Result<CapturesAround, Refusal> {
        let key = key_of(url).ok_or_else(|| Refusal::bad_request(format!("no key for {url}")))?;
        let access = self.rules.of_key(&key, &question.asked.reader);
        let hidden = Cell::new(None);
        let may_list = |moment: Moment| {
            let is_hidden = access.at(moment) == AccessRule::Exclude;
            if is_hidden {
                hidden.set(Some(moment));
            }
            !is_hidden
        };
        let mut around = captures_around(
            &question.generation,
            &key,
            wanted,
            self.policy(question).by_time(),
            self.settings.scan_lines,
            &may_list,
        )?;
        around.hidden_by = hidden.get().map(|moment| access.reason(moment));
        Ok(around)
    }

    pub(crate) fn absent(&self, url: &str) -> Refusal {
        Refusal::new(StatusCode::NOT_FOUND, "absent", url)
    }

    /// Finds and loads the capture of a URL for a moment.
    ///
    /// A site that sends `http` to `https`, or a host to its www, has captures under one key that lead to each other. Such a
    /// redirect to itself is passed over where there is another capture.
    pub(crate) fn resolve(
        &self,
        question: &Question<'_>,
        url: &str,
        wanted: Moment,
    ) -> Result<Resolved, Refusal> {
        let mut around = self.around(question, url, wanted)?;
        let mut candidates = std::mem::take(&mut around.candidates);
        if let Some(harvest) = self.harvest_of_referer(question) {
            // What a page needs comes from its own harvest first, then from the nearest time.
            let is_other =
                |capture: &IndexedCapture| harvest_of(&capture.filename) != Some(&harvest);
            candidates.sort_by_key(is_other);
            if self.policy(question) == LinkPolicy::SameHarvest {
                candidates.retain(|capture| !is_other(capture));
            }
        }
        let mut redirect = None;
        for capture in candidates {
            let reader = &question.asked.reader;
            let access = self.rules.of_key(capture.key.as_bytes(), reader);
            let moment = capture.moment();
            if access.at(moment) != AccessRule::Allow {
                let status = StatusCode::UNAVAILABLE_FOR_LEGAL_REASONS;
                let refusal = Refusal::new(status, "blocked", url);
                return Err(refusal.by_rule(Some(access.reason(moment))));
            }
            let loaded = self.load(question, capture)?;
            // By the head: the line of a revisit may say nothing of the status.
            if loaded.head.status / 100 == 3 && redirects_to_itself(&loaded) {
                redirect.get_or_insert(loaded);
                continue;
            }
            return Ok(Resolved { loaded, around });
        }
        match redirect {
            Some(loaded) => Ok(Resolved { loaded, around }),
            None => Err(self.absent(url).by_rule(around.hidden_by)),
        }
    }

    /// Returns the harvest of the page that asks: that of the capture its address stands for.
    fn harvest_of_referer(&self, question: &Question<'_>) -> Option<String> {
        let asked = question.asked;
        let referer = asked.header(header::REFERER)?;
        let (url, moment) = match asked.proxied_at {
            Some(moment) => (referer, moment),
            None => {
                let rest = referer
                    .strip_prefix(&question.prefix())?
                    .strip_prefix('/')?;
                let path = ReplayPath::parse(rest).filter(|path| !path.modifier.is_empty())?;
                (path.url, Moment::first_of(path.digits)?)
            }
        };
        let url = checked_url(url).ok()?;
        let around = self.around(question, &url, moment).ok()?;
        let page = around.candidates.first()?;
        harvest_of(&page.filename).map(str::to_owned)
    }

    fn load(
        &self,
        question: &Question<'_>,
        capture: IndexedCapture,
    ) -> Result<LoadedCapture, Refusal> {
        let Question {
            collection,
            generation,
            ..
        } = question;
        Ok(load(
            &self.archive,
            &self.locations,
            &self.root,
            collection,
            generation,
            capture,
        )?)
    }

    fn replay(&self, question: &Question<'_>, path: &ReplayPath<'_>) -> Result<Reply, Refusal> {
        let asked = question.asked;
        let url = checked_url(path.url)?;
        // Links of a page at `http://host` would be taken for those of the collection.
        if let Some(with_path) = with_root_path(&url) {
            let (collection, digits) = (question.collection, path.digits);
            let to = format!("/{collection}/{digits}{}/{with_path}", path.modifier);
            return Ok(redirect(StatusCode::TEMPORARY_REDIRECT, &to));
        }
        // wabac.js shows what it gets so.
        let is_copy = path.modifier == "id_" || path.modifier == "ir_" && !self.has_wabac();
        if is_copy && !asked.reader.may_download {
            return Err(Refusal::no_download(&url));
        }
        let wanted = match path.digits {
            "" => Moment::last_of("9").expect("digits"),
            digits => Moment::first_of(digits).expect("only digits were read"),
        };
        let is_page = asked.header("sec-fetch-dest") == Some("document");
        // A document opened by itself could lead anywhere; within the frame it cannot.
        if is_page && matches!(path.modifier, "mp_" | "if_" | "fr_") {
            let to = format!("/{}/{}/{url}", question.collection, wanted.as_str());
            return Ok(redirect(StatusCode::TEMPORARY_REDIRECT, &to));
        }
        if path.modifier.is_empty() {
            return self.frame(question, &url, wanted, path.digits);
        }
        let Resolved { loaded, around } = self.resolve(question, &url, wanted)?;
        let moment = loaded.capture.moment();
        let collection = format!("/{}", question.collection);
        let address = ReplayAddress {
            collection: &collection,
            moment,
            modifier: path.modifier,
            url: match loaded.capture.url.is_empty() {
                true => url.as_str().into(),
                false => loaded.capture.url.clone().into(),
            },
        };
        let prefix = question.prefix();
        let addresses = MementoAddresses {
            prefix: &prefix,
            url: &address.url.clone(),
        };
        let links = addresses.links_of(moment, &around, path.modifier);
        let itself = addresses.memento(moment, path.modifier);
        let leads_to = loaded.head.text("Location");
        if path.modifier != "id_"
            && loaded.head.status / 100 == 3
            && leads_to.is_some_and(|to| to == url && to == *address.url)
        {
            let status = StatusCode::LOOP_DETECTED;
            return Err(Refusal::new(status, "loop", &url));
        }
        let mut reply = match path.modifier {
            // The second is for programs that rewrite by themselves: the body as it was, a redirect led here.
            "id_" | "ir_" => self.raw_reply(asked, &address, loaded)?,
            _ => self.rewritten_reply(asked, &address, loaded)?,
        };
        let headers = reply.headers_mut();
        let date = HeaderValue::from_str(&moment.http_date());
        headers.insert("memento-datetime", date.expect("a date is ASCII"));
        put(&mut reply, header::LINK, &links);
        put(&mut reply, header::CONTENT_LOCATION, &itself);
        Ok(reply)
    }

    fn search(&self, asked: &Asked) -> Result<Reply, Refusal> {
        let parameters = Parameters::parse(asked.query.as_deref().unwrap_or_default());
        let url = parameters.get("url").unwrap_or_default().trim();
        if url.is_empty() {
            return Ok(redirect(StatusCode::FOUND, "/"));
        }
        let url = checked_url(url)?;
        let collection = parameters.get("collection").filter(|name| !name.is_empty());
        let collection = collection.unwrap_or(self.archive.main());
        let known = self.archive.collections();
        if !known.iter().any(|name| name == collection) {
            return Err(ArchiveError::NoCollection(collection.to_owned()).into());
        }
        let to = format!("/{collection}/*/{url}");
        Ok(redirect(StatusCode::FOUND, &to))
    }

    /// Remembers the language a reader chose, and goes back to where he was.
    pub(crate) fn choose_language(&self, asked: &Asked) -> Result<Reply, Refusal> {
        let parameters = Parameters::parse(asked.query.as_deref().unwrap_or_default());
        let language = parameters.get("lang").unwrap_or_default();
        if !crate::pages::LANGUAGES.contains(&language) {
            return Err(Refusal::bad_request(format!("lang={language}")));
        }
        let back = asked
            .header(header::REFERER)
            .and_then(|referer| referer.strip_prefix(asked.base.as_str()))
            .filter(|path| path.starts_with('/') && !path.starts_with("//"))
            .unwrap_or("/");
        let mut reply = redirect(StatusCode::SEE_OTHER, back);
        let cookie = format!("lang={language}; Path=/; Max-Age=31536000; SameSite=Lax; HttpOnly");
        put(&mut reply, header::SET_COOKIE, &cookie);
        Ok(reply)
    }

    /// Puts what a client needs to know of a refusal beside its text.
    pub(crate) fn put_refusal_fields(&self, asked: &Asked, refusal: &Refusal, reply: &mut Reply) {
        if refusal.status.is_server_error() {
            let Refusal { reason, detail, .. } = refusal;
            tracing::warn!(reason, detail, "refused");
        }
        if refusal.status == StatusCode::SERVICE_UNAVAILABLE {
            put(reply, header::RETRY_AFTER, "30");
        }
        if refusal.status == StatusCode::METHOD_NOT_ALLOWED {
            put(reply, header::ALLOW, "GET, HEAD");
        }
        if refusal.status == StatusCode::UNAUTHORIZED {
            put(reply, header::WWW_AUTHENTICATE, "Basic realm=\"archive\"");
        }
        if let Some(rule) = refusal.rule.as_ref().filter(|_| asked.reader.is_staff) {
            put(reply, RULE, rule);
        }
    }

    /// Says why something is not shown: as a page, and to programs as they expect it.
    fn refuse(&self, asked: &Asked, kind: RequestKind, refusal: &Refusal) -> Reply {
        let rule = refusal.rule.as_ref().filter(|_| asked.reader.is_staff);
        let mut reply = match kind {
            RequestKind::Cdx | RequestKind::TimeMap | RequestKind::Path => {
                let mut body = serde_json::json!({"message": refusal.detail});
                if let Some(rule) = rule {
                    body["rule"] = rule.as_str().into();
                }
                whole(refusal.status, "application/json", format!("{body}\n"))
            }
            RequestKind::Page
            | RequestKind::Replay
            | RequestKind::TimeGate
            | RequestKind::Proxy
            | RequestKind::Other => self.refusal_page(asked, refusal),
        };
        self.put_refusal_fields(asked, refusal, &mut reply);
        if kind == RequestKind::Replay {
            // What a page asks for and does not get, it must be able to see.
            put(&mut reply, header::ACCESS_CONTROL_ALLOW_ORIGIN, "*");
        }
        reply
    }
}

/// A question about one collection.
pub(crate) struct Question<'a> {
    pub(crate) asked: &'a Asked,
    pub(crate) collection: &'a str,
    pub(crate) generation: Arc<OpenGeneration>,
}

impl Question<'_> {
    /// Returns the name of the collection, without what the reader chose.
    pub(crate) fn name(&self) -> &str {
        split_policy(self.collection).0
    }

    /// Returns the address of the collection.
    pub(crate) fn prefix(&self) -> String {
        format!("{}/{}", self.asked.base, self.collection)
    }

    /// Returns the path of the list of captures of a URL.
    pub(crate) fn list_path(&self, url: &str) -> String {
        format!("/{}/*/{}", self.collection, safe_url(url))
    }
}

/// Returns a URL with its scheme; one that is too long, or holds what no URL holds, is refused.
pub(crate) fn checked_url(url: &str) -> Result<String, Refusal> {
    let url = with_scheme(url.trim());
    if url.len() > LONGEST_URL {
        return Err(Refusal::bad_request("the URL is too long"));
    }
    if url.chars().any(char::is_control) {
        return Err(Refusal::bad_request("control characters in the URL"));
    }
    Ok(url.into_owned())
}

/// Returns a URL that has a host and nothing behind it with a slash.
fn with_root_path(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let end = rest.find(['?', '#']).unwrap_or(rest.len());
    let (host, query) = rest.split_at(end);
    (!host.contains('/')).then(|| format!("{scheme}://{host}/{query}"))
}

/// Returns what the files of one harvest have in common: the name up to the time, `[collection-]job-harvest`.
fn harvest_of(filename: &str) -> Option<&str> {
    let is_time = |part: &str| {
        matches!(part.len(), 14 | 17) && part.bytes().all(|byte| byte.is_ascii_digit())
    };
    let mut start = 0;
    let mut found = None;
    for part in filename.split('-') {
        // The harvest of `ecluse harvest` is a time itself: the last one is that of the file.
        if start > 0 && is_time(part) {
            found = filename.get(..start - 1);
        }
        start += part.len() + 1;
    }
    found
}

/// Says whether a capture leads to another of its own key.
fn redirects_to_itself(loaded: &LoadedCapture) -> bool {
    let Some(location) = loaded.head.text("Location") else {
        return false;
    };
    let Ok(base) = url::Url::parse(&loaded.capture.url) else {
        return false;
    };
    let Ok(target) = base.join(location.trim()) else {
        return false;
    };
    key_of(target.as_str()).is_some_and(|key| key == loaded.capture.key.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_harvest_of_a_file_is_in_its_name() {
        for (name, harvest) in [
            (
                "145-412-20260101000000000-00001-host.warc.gz",
                Some("145-412"),
            ),
            (
                "BnF-145-412-20260101000000-00001-host.warc.gz",
                Some("BnF-145-412"),
            ),
            (
                "example.org-20260101000000-20260101000001123-00000-host.warc.gz",
                Some("example.org-20260101000000"),
            ),
            (
                "BnF-145-20260101000000-20260101000001123-00000-host.warc.gz",
                Some("BnF-145-20260101000000"),
            ),
            ("a.warc.gz", None),
            ("", None),
        ] {
            assert_eq!(harvest_of(name), harvest, "{name}");
        }
    }

    #[test]
    fn a_host_gets_its_slash() {
        assert_eq!(with_root_path("http://a"), Some("http://a/".into()));
        assert_eq!(with_root_path("http://a?x=/"), Some("http://a/?x=/".into()));
        assert_eq!(with_root_path("http://a/"), None);
        assert_eq!(with_root_path("dns:a"), None);
    }
}
