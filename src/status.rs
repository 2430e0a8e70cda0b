//! `ecluse status`: one screen an operator can act on.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ecluse_spool::ServerState;
use ecluse_stage::Exit;
use ecluse_telemetry::{printable, printable_text};
use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios};

use crate::cli::StatusOptions;
use crate::context::{DriverContext, Trouble};
use crate::jobs;
use crate::needs::Need;
use crate::paint::Paint;
use crate::show;
use crate::survey::{Condition, Survey};

/// More needs than this are counted, not shown.
const MOST_SHOWN: usize = 20;

pub(crate) fn status(
    context: &DriverContext,
    options: &StatusOptions,
) -> Result<ExitCode, Trouble> {
    context.must_be_archive()?;
    if let Some(stage) = &options.stage {
        context.known_stage(stage)?;
    }
    if options.watch && context.json {
        return Err(Trouble::usage(
            "a screen that is drawn again has no answer in JSON: ask `status --json` as often as you like",
        ));
    }
    if options.watch {
        return watch(context, options);
    }
    let survey = context.survey(options.stage.as_deref())?;
    if context.json {
        let value = serde_json::to_value(&survey).map_err(io::Error::from)?;
        context.print_json(value)?;
    } else if options.brief {
        context.print(&format!("{}\n", brief(&survey)))?;
    } else {
        context.print(&screen(context, &survey, usize::MAX))?;
    }
    // A screen without the stages is not what was asked for.
    Ok(match survey.hides_stages() {
        true => Exit::Machine.into(),
        false => Exit::Done.into(),
    })
}

fn watch(context: &DriverContext, options: &StatusOptions) -> Result<ExitCode, Trouble> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    let terminal = io::stdout().is_terminal();
    if terminal {
        // Lines that do not fit are cut by the terminal: wrapped, they would push the rest off the screen.
        context.print("\x1b[?1049h\x1b[?25l\x1b[?7l")?;
    }
    let keys = Keys::begin();
    let result = draw_again(context, options, &stop, terminal, &keys);
    drop(keys);
    if terminal {
        context.print("\x1b[?7h\x1b[?25h\x1b[?1049l")?;
    }
    result.map(|()| Exit::Done.into())
}

fn draw_again(
    context: &DriverContext,
    options: &StatusOptions,
    stop: &AtomicBool,
    terminal: bool,
    keys: &Keys,
) -> Result<(), Trouble> {
    while !stop.load(Ordering::Relaxed) {
        let survey = context.survey(options.stage.as_deref())?;
        let height = rustix::termios::tcgetwinsize(io::stdout())
            .map_or(24, |size| usize::from(size.ws_row).max(10));
        let text = screen(context, &survey, height);
        if terminal {
            let text = clip(&text, height).replace('\n', "\x1b[K\r\n");
            context.print(&format!("\x1b[H{text}\x1b[J"))?;
        } else {
            context.print(&text)?;
        }
        io::stdout().flush()?;
        let next = Instant::now() + Duration::from_secs(2);
        while Instant::now() < next && !stop.load(Ordering::Relaxed) {
            if keys.wait() == Some(b'q') {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// The keys of a terminal, one by one and not shown; given back as they were.
struct Keys {
    before: Option<Termios>,
}

impl Keys {
    fn begin() -> Self {
        let before = rustix::termios::tcgetattr(io::stdin()).ok();
        if let Some(before) = &before {
            let mut single = before.clone();
            single.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
            // A read ends after a tenth of a second without a key.
            single.special_codes[SpecialCodeIndex::VMIN] = 0;
            single.special_codes[SpecialCodeIndex::VTIME] = 1;
            let _ = rustix::termios::tcsetattr(io::stdin(), OptionalActions::Now, &single);
        }
        Self { before }
    }

    /// Waits a tenth of a second, or until a key is pressed.
    fn wait(&self) -> Option<u8> {
        let mut key = [0];
        // Where nothing can be read, nothing is waited for either.
        if self.before.is_none() || rustix::io::read(io::stdin(), &mut key).is_err() {
            std::thread::sleep(Duration::from_millis(100));
        }
        Some(key[0]).filter(|key| *key != 0)
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            let _ = rustix::termios::tcsetattr(io::stdin(), OptionalActions::Now, before);
        }
    }
}

pub(crate) fn brief(survey: &Survey) -> String {
    let sum =
        |of: fn(&crate::survey::StageView) -> usize| survey.stages.iter().map(of).sum::<usize>();
    let oldest = survey
        .stages
        .iter()
        .filter(|stage| !stage.is_end && !stage.is_optional)
        .filter_map(|stage| stage.depths.oldest_ready)
        .max();
    format!(
        "ecluse: {} waiting, {} working, {} deferred, {} held, oldest {}, {} need you",
        sum(|s| match s.is_end || s.is_optional {
            true => 0,
            false => s.depths.ready,
        }),
        sum(|s| s.depths.working),
        sum(|s| s.depths.deferred),
        sum(|s| s.depths.held),
        oldest.map_or_else(|| "-".into(), show::age),
        survey.needs_you.len()
    )
}

fn screen(context: &DriverContext, survey: &Survey, height: usize) -> String {
    let paint = Paint {
        color: context.color,
    };
    let mut text = head(context, survey, &paint);
    text.push_str(&servers(survey, &paint));
    if survey.hides_stages() {
        needs(context, &mut text, survey, &paint, width(), usize::MAX);
        return text;
    }
    text.push_str(
        &paint.dim("     STAGE          WAIT   WORK  DEFER   HELD    OLDEST  LAST HOUR  STATE\n"),
    );
    let last = survey.stages.len().saturating_sub(1);
    for (at, stage) in survey.stages.iter().enumerate() {
        let depths = &stage.depths;
        let mark = match (at, at == last) {
            (0, true) => "─",
            (0, false) => "┌",
            (_, true) => "└",
            (_, false) => "├",
        };
        let rate = match stage.last_hour.count {
            0 => "-".to_owned(),
            count if stage.last_hour.estimated => format!("~{count}"),
            count => count.to_string(),
        };
        let state = match stage.state {
            _ if stage.is_end => "end of the chain",
            Condition::Stopped if stage.is_optional => "not needed",
            state => state.word(),
        };
        let state = match stage.state {
            Condition::Ok => state.to_owned(),
            Condition::Stopped => paint.dim(state),
            Condition::Paused | Condition::Blocked => paint.yellow(state),
            Condition::Silent | Condition::Halted => paint.red(state),
        };
        let held = format!("{:>6}", depths.held);
        let held = if depths.held > 0 {
            paint.red(&held)
        } else {
            held
        };
        text.push_str(&format!(
            "  {mark}▶ {:<12} {:>6} {:>6} {:>6} {held} {:>9} {rate:>10}  {state}\n",
            show::cut(&printable(stage.name.as_bytes()), 12),
            depths.ready + depths.dropped,
            depths.working,
            depths.deferred,
            depths.oldest_ready.map_or_else(|| "-".into(), show::age),
        ));
        if stage.state == Condition::Ok && !stage.why.is_empty() {
            let said = printable(stage.why.as_bytes());
            text.push_str(&format!("  │    {said}\n"));
        }
        let after = survey.stages.get(at + 1).map(|stage| stage.name.as_str());
        let straight = stage.next.len() == 1 && stage.next.first().map(String::as_str) == after;
        if !straight && !stage.next.is_empty() {
            text.push_str(&format!("  │    goes to {}\n", stage.next.join(", ")));
        }
    }
    text.push('\n');
    let width = width();
    text.push_str(&jobs::table(&survey.jobs, paint, width));
    text.push_str(&survey.holdings.damage_line(context));
    text.push_str(&survey.holdings.awaited_line());
    let room = height.saturating_sub(text.lines().count() + 2);
    needs(context, &mut text, survey, &paint, width, room);
    text
}

/// Returns how wide a line may be.
fn width() -> usize {
    let said = std::env::var("COLUMNS")
        .ok()
        .and_then(|said| said.parse().ok());
    match io::stdout().is_terminal() {
        true => show::columns(io::stdout()),
        false => said.unwrap_or(usize::MAX),
    }
}

/// Shows the servers, where the parcels are on some.
fn servers(survey: &Survey, paint: &Paint) -> String {
    let Some(cluster) = &survey.cluster else {
        return String::new();
    };
    let mut text = paint.dim("     SERVER         STATE    LEADS    LAG  ADDRESS\n");
    for server in &cluster.servers {
        let name = match server.name.as_str() {
            "" => "?",
            name => name,
        };
        let state = format!("{:<8}", server.state.word());
        let state = match server.state {
            ServerState::Ok => state,
            ServerState::Behind => paint.yellow(&state),
            ServerState::CutOff => paint.red(&state),
        };
        text.push_str(&format!(
            "     {:<14} {state} {:>5} {:>6}  {}\n",
            show::cut(&printable(name.as_bytes()), 14),
            server.leads,
            server.lag,
            printable(server.address.as_bytes()),
        ));
    }
    let store = &cluster.store;
    let state = match (store.read_ms, store.write_ms) {
        (Some(read), Some(write)) => format!("reads in {read} ms, writes in {write} ms"),
        (Some(_), None) => paint.red("CANNOT BE WRITTEN"),
        (None, _) => paint.red("CANNOT BE READ"),
    };
    let address = printable(store.address.as_bytes());
    text.push_str(&format!("     store {address}: {state}\n\n"));
    text
}

/// Cuts a screen to a height: lines too many would push the first ones off it.
fn clip(text: &str, height: usize) -> String {
    let lines = text.lines().count();
    // The line after the last is the cursor's.
    let room = height.saturating_sub(1);
    if lines <= room {
        return text.to_owned();
    }
    let kept = room.saturating_sub(1);
    let mut clipped: String = text.lines().take(kept).map(|l| format!("{l}\n")).collect();
    let more = show::count(lines - kept, "line", "lines");
    clipped.push_str(&format!("… {more} more than this window has\n"));
    clipped
}

fn head(context: &DriverContext, survey: &Survey, paint: &Paint) -> String {
    let now = jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::system());
    let place = [
        &context.pipeline.site.organization,
        &context.pipeline.site.platform,
    ];
    let place: Vec<&str> = place
        .iter()
        .map(|s| s.as_str())
        .filter(|s| !s.is_empty())
        .collect();
    let room = survey.room.map_or_else(String::new, |room| {
        format!(
            "{} free ({} %)",
            show::bytes(room.free),
            room.free.saturating_mul(100) / room.total.max(1)
        )
    });
    let root = context
        .root
        .canonicalize()
        .unwrap_or_else(|_| context.root.clone());
    let head = format!(
        "ecluse {}  {}  {}  {room}  {}",
        env!("CARGO_PKG_VERSION"),
        printable(root.display().to_string().as_bytes()),
        printable(place.join("/").as_bytes()),
        now.strftime("%Y-%m-%d %H:%M")
    );
    format!("{}\n\n", paint.bold(&head.replace("    ", "  ")))
}

/// Adds what needs a person, as far as there is room: the reason first, then the name, then what to type.
fn needs(
    context: &DriverContext,
    text: &mut String,
    survey: &Survey,
    paint: &Paint,
    width: usize,
    room: usize,
) {
    let all = survey.needs_you.len();
    if all == 0 {
        text.push_str("  Nothing needs you.\n");
        return;
    }
    text.push_str(&paint.bold(&format!("  NEEDS YOU ({all})\n")));
    // On a screen that is drawn again one reason must not push the others off it.
    let most = if room < 1000 { 3 } else { 8 };
    let mut shown = 0;
    let mut lines = 0;
    for need in survey.needs_you.iter().take(MOST_SHOWN) {
        let entry = entry(need, shown + 1, width, most);
        lines += entry.len();
        if lines > room {
            break;
        }
        shown += 1;
        for (at, (line, is_dim)) in entry.iter().enumerate() {
            let number = match at {
                0 => format!("  {shown:>2}. "),
                _ => "      ".to_owned(),
            };
            let line = match is_dim {
                true => paint.dim(line),
                false => line.clone(),
            };
            text.push_str(&format!("{number}{line}\n"));
        }
    }
    if shown < all {
        text.push_str(&format!(
            "      and {} more: {}\n",
            all - shown,
            context.command("status --json")
        ));
    }
    context.remember(survey.needs_you.get(..shown).unwrap_or_default());
}

/// Returns the lines of one need, and of each whether it is dim.
fn entry(need: &Need, number: usize, width: usize, most: usize) -> Vec<(String, bool)> {
    const INDENT: usize = 6;
    let width = width.saturating_sub(INDENT);
    let what = format!("{}: {}", need.stage, need.what);
    let mut lines: Vec<(String, bool)> = show::wrap(&printable_text(&what), width, most)
        .into_iter()
        .map(|line| (line, false))
        .collect();
    if let Some(parcel) = &need.parcel {
        let more = match need.count {
            0 | 1 => String::new(),
            count => format!(" and {} more", count - 1),
        };
        let name = printable(parcel.as_bytes());
        let room = width.saturating_sub(more.chars().count());
        lines.push((format!("{}{more}", show::cut(&name, room)), true));
    }
    let command = printable_text(&need.command_for(number));
    // A command is never cut, but two of them need not stand in one line.
    match command.chars().count() > width {
        true => lines.extend(command.split("   ").map(|part| (part.to_owned(), true))),
        false => lines.push((command, true)),
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_comes_before_the_name_and_is_there_at_eighty_columns() {
        let name = "BnF-145-412-20260101000000000-00017-a-very-long-host-name.example.org.warc.gz";
        let need = Need {
            stage: "index".into(),
            parcel: Some(name.into()),
            count: 60,
            what: format!(
                "60 parcels: cannot parse record 812 of {name} at offset 73400320: no Content-Length; since 10:00"
            ),
            command: format!("ecluse why {name}   or  discard --stage index"),
            choice: Some("--stage index".into()),
            is_at_fault: true,
        };
        let lines = entry(&need, 3, 80, 3);
        assert!(
            lines.iter().all(|(line, _)| line.chars().count() <= 74),
            "{lines:?}"
        );
        let at = |part: &str| lines.iter().position(|(line, _)| line.contains(part));
        assert!(
            at("no Content-Length").unwrap() < at("and 59 more").unwrap(),
            "{lines:?}"
        );
        assert_eq!(
            lines.last().unwrap().0,
            "ecluse why 3   or  discard --stage index"
        );
    }

    #[test]
    fn two_commands_that_do_not_fit_stand_in_two_lines() {
        let command = format!("ecluse --root /{} why 1   ecluse discard 1", "x".repeat(60));
        let need = Need::of_stage("index", "no record".into(), command);
        let lines: Vec<String> = entry(&need, 1, 80, 3)
            .into_iter()
            .map(|line| line.0)
            .collect();
        assert_eq!(lines[2], "ecluse discard 1", "{lines:?}");
        assert!(lines[1].ends_with(" why 1"), "{lines:?}");
        assert_eq!(entry(&need, 1, usize::MAX, 3).len(), 2);
    }

    #[test]
    fn a_reason_is_not_escaped_a_second_time() {
        let what = r#"no record: first "\x00\x1f""#.to_owned();
        let need = Need::of_stage("index", format!("{what}\u{1b}"), "ecluse why 1".into());
        assert_eq!(
            entry(&need, 1, 80, 3)[0].0,
            format!(r"index: {what}\u{{1b}}")
        );
    }

    #[test]
    fn a_screen_is_no_higher_than_its_window() {
        let text = "1\n2\n3\n4\n5\n";
        assert_eq!(clip(text, 6), text);
        assert_eq!(
            clip(text, 5),
            "1\n2\n3\n… 2 lines more than this window has\n"
        );
        assert_eq!(clip(text, 1), "… 5 lines more than this window has\n");
    }
}
