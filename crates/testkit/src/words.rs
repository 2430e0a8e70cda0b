//! What a test's file may ask of the sample that reads it, by its first word.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ecluse_stage::{Failure, Outbox, Parcel};

/// Does what the first word of a file asks for; any other word asks for nothing.
///
/// | word | what happens |
/// |---|---|
/// | `hold` | the parcel is at fault |
/// | `defer` | the world is at fault, for ever |
/// | `defer N` | the world is at fault until the second N since 1970 |
/// | `halt` | the machine is at fault |
/// | `panic` | the work crashes |
/// | `die` | the process dies |
/// | `sleep N` | the work takes N milliseconds, and is given back when asked to stop |
/// | `wedge` | the work stands still until `wedge_until` exists |
pub(crate) fn obey(
    bytes: &[u8],
    parcel: &Parcel,
    outbox: &Outbox,
    wedge_until: &Path,
) -> Result<(), Failure> {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(200)]);
    let mut words = text.split_whitespace();
    let word = words.next();
    let number: Option<u64> = words.next().and_then(|word| word.parse().ok());
    match word {
        Some("hold") => Err(Failure::hold(format!("{} asks to be held", parcel.id()))),
        Some("defer") if number.is_some_and(|until| now() >= until) => Ok(()),
        Some("defer") => Err(Failure::defer(format!("{} asks to wait", parcel.id()))),
        Some("halt") => Err(Failure::halt(format!("{} breaks the machine", parcel.id()))),
        Some("panic") => panic!("{} asks for a crash", parcel.id()),
        Some("die") => std::process::abort(),
        Some("sleep") => sleep(Duration::from_millis(number.unwrap_or(1000)), outbox),
        Some("wedge") => {
            while !wedge_until.exists() {
                std::thread::sleep(Duration::from_millis(20));
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

/// Sleeps as long work would: saying that it goes forward, and stopping when asked.
fn sleep(mut left: Duration, outbox: &Outbox) -> Result<(), Failure> {
    let step = Duration::from_millis(10);
    while !left.is_zero() {
        if outbox.stop_asked() {
            return Err(Failure::give_back());
        }
        outbox.tick();
        std::thread::sleep(step.min(left));
        left = left.saturating_sub(step);
    }
    Ok(())
}
