//! `ecluse status`: one screen an operator can act on.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ecluse_stage::Exit;
use ecluse_telemetry::printable;

use crate::cli::StatusOptions;
use crate::desk::{Desk, Trouble};
use crate::jobs;
use crate::paint::Paint;
use crate::show;
use crate::survey::{Condition, LISTED, Need, Survey};

pub(crate) fn status(desk: &Desk, options: &StatusOptions) -> Result<ExitCode, Trouble> {
    desk.must_be_archive()?;
    if let Some(stage) = &options.stage {
        desk.known_stage(stage)?;
    }
    if options.watch {
        return watch(desk, options);
    }
    let survey = desk.survey(options.stage.as_deref())?;
    remember(desk, &survey.needs_you);
    if desk.json {
        let value = serde_json::to_value(&survey).map_err(io::Error::from)?;
        desk.print_json(value)?;
    } else if options.brief {
        desk.print(&format!("{}\n", brief(&survey)))?;
    } else {
        desk.print(&screen(desk, &survey, usize::MAX))?;
    }
    Ok(Exit::Done.into())
}

fn watch(desk: &Desk, options: &StatusOptions) -> Result<ExitCode, Trouble> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    let terminal = io::stdout().is_terminal();
    if terminal {
        // Lines that do not fit are cut by the terminal: wrapped, they would push the rest off the screen.
        desk.print("\x1b[?1049h\x1b[?25l\x1b[?7l")?;
    }
    let result = draw_again(desk, options, &stop, terminal);
    if terminal {
        desk.print("\x1b[?7h\x1b[?25h\x1b[?1049l")?;
    }
    result.map(|()| Exit::Done.into())
}

fn draw_again(
    desk: &Desk,
    options: &StatusOptions,
    stop: &AtomicBool,
    terminal: bool,
) -> Result<(), Trouble> {
    while !stop.load(Ordering::Relaxed) {
        let survey = desk.survey(options.stage.as_deref())?;
        remember(desk, &survey.needs_you);
        let height = rustix::termios::tcgetwinsize(io::stdout())
            .map_or(24, |size| usize::from(size.ws_row).max(10));
        let text = screen(desk, &survey, height);
        if terminal {
            let text = clip(&text, height).replace('\n', "\x1b[K\r\n");
            desk.print(&format!("\x1b[H{text}\x1b[J"))?;
        } else {
            desk.print(&text)?;
        }
        io::stdout().flush()?;
        let next = Instant::now() + Duration::from_secs(2);
        while Instant::now() < next && !stop.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    Ok(())
}

/// Keeps what the numbers mean, so that `why 1` is about the line that was shown as 1.
fn remember(desk: &Desk, needs: &[Need]) {
    let path = desk.root.join(Need::SHOWN);
    if let Ok(text) = serde_json::to_vec(needs)
        && !std::fs::read(&path).is_ok_and(|old| old == text)
    {
        // Best effort: on a full or read-only disk the screen is still right.
        let _ = std::fs::write(&path, text);
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

fn screen(desk: &Desk, survey: &Survey, height: usize) -> String {
    let paint = Paint { color: desk.color };
    let mut text = head(desk, survey, &paint);
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
        let after = survey.stages.get(at + 1).map(|stage| stage.name.as_str());
        let straight = stage.next.len() == 1 && stage.next.first().map(String::as_str) == after;
        if !straight && !stage.next.is_empty() {
            text.push_str(&format!("  │    goes to {}\n", stage.next.join(", ")));
        }
    }
    text.push('\n');
    let width = match io::stdout().is_terminal() {
        true => show::columns(io::stdout()),
        false => usize::MAX,
    };
    text.push_str(&jobs::table(&survey.jobs, paint, width));
    text.push_str(&survey.holdings.damage_line(desk));
    let room = height.saturating_sub(text.lines().count() + 2);
    needs(desk, &mut text, survey, &paint, room);
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
    clipped.push_str(&format!(
        "… {} lines more than this window has\n",
        lines - kept
    ));
    clipped
}

fn head(desk: &Desk, survey: &Survey, paint: &Paint) -> String {
    let now = jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::system());
    let place = [
        &desk.pipeline.site.organization,
        &desk.pipeline.site.platform,
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
    let root = desk
        .root
        .canonicalize()
        .unwrap_or_else(|_| desk.root.clone());
    let head = format!(
        "ecluse {}  {}  {}  {room}  {}",
        env!("CARGO_PKG_VERSION"),
        printable(root.display().to_string().as_bytes()),
        printable(place.join("/").as_bytes()),
        now.strftime("%Y-%m-%d %H:%M")
    );
    format!("{}\n\n", paint.bold(&head.replace("    ", "  ")))
}

fn needs(desk: &Desk, text: &mut String, survey: &Survey, paint: &Paint, room: usize) {
    let all = survey.needs_you.len();
    if all == 0 {
        text.push_str("  Nothing needs you.\n");
        return;
    }
    let more = if all >= LISTED { "+" } else { "" };
    text.push_str(&paint.bold(&format!("  NEEDS YOU ({all}{more})\n")));
    let shown = (room / 2).clamp(1, 20).min(all);
    // On a screen that is drawn again a line must not wrap too often; printed once, the cause, which
    // stands at the end of a reason, must not be cut off.
    let longest = if room < 1000 { 200 } else { 600 };
    for (at, need) in survey.needs_you.iter().take(shown).enumerate() {
        let subject = need.parcel.as_deref().unwrap_or("");
        let space = if subject.is_empty() { "" } else { " " };
        let stage = show::cut(&need.stage, 10);
        let line = format!("{stage:<10} {subject}{space}{}", need.what);
        text.push_str(&format!(
            "  {:>2}. {}\n",
            at + 1,
            show::cut(&printable(line.as_bytes()), longest)
        ));
        text.push_str(&paint.dim(&format!("      {}\n", printable(need.command.as_bytes()))));
    }
    if shown < all {
        text.push_str(&format!(
            "      and {} more: {}\n",
            all - shown,
            desk.command("status --json")
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
