//! A command of the operator's: one that takes a file, and one that says whether a file was taken.
//!
//! | exit code | of the one that takes | of the one that is asked |
//! |---|---|---|
//! | 0, and a last line | the receipt | the receipt |
//! | 0, and nothing said | taken, the receipt comes later | the same |
//! | 66 | – | it does not have it |
//! | 75 | busy: later, no error | the same |
//! | 65 | it does not take this file | the same |
//! | any other | later | later |

use ecluse_holding::{CommandEnd, Fixity, open_plain, read_afresh, run_command};
use ecluse_stage::Failure;

use crate::receiver::{Answer, DepositFault, DepositTask, Receipt, fill};
use crate::settings::CommandSettings;

const REFUSED: i32 = 65;
const NOT_THERE: i32 = 66;
const BUSY: i32 = 75;

pub(crate) struct CommandReceiver(pub(crate) CommandSettings);

impl CommandReceiver {
    pub(crate) fn ask(&self, task: &DepositTask<'_>) -> Result<Answer, DepositFault> {
        let end = self.run(&self.0.ask, task)?;
        match end.status.code() {
            Some(NOT_THERE) => Ok(Answer::Absent),
            _ => answer(&self.0.ask[0], end, task),
        }
    }

    /// Runs the command for a file that was read just before.
    pub(crate) fn send(&self, task: &DepositTask<'_>) -> Result<Answer, DepositFault> {
        let found = open_plain(task.path)
            .map_err(Into::into)
            .and_then(|mut file| read_afresh(&mut file, task.going));
        must_be(found, task)?;
        let end = self.run(&self.0.command, task)?;
        answer(&self.0.command[0], end, task)
    }

    fn run(&self, words: &[String], task: &DepositTask<'_>) -> Result<CommandEnd, DepositFault> {
        let words = words.iter().map(|word| fill(word, task, &str::to_owned));
        let words: Vec<String> = words.collect();
        run_command(&words, self.0.timeout, task.going).map_err(|failure| match failure.blame {
            ecluse_stage::Blame::World => DepositFault::Away(failure.reason),
            _ => failure.into(),
        })
    }
}

fn must_be(
    found: Result<Fixity, ecluse_holding::ReadFault>,
    task: &DepositTask<'_>,
) -> Result<(), DepositFault> {
    let shown = task.path.display();
    match found {
        Ok(found) if found == task.wanted => Ok(()),
        Ok(found) => {
            let wanted = &task.wanted;
            Err(Failure::hold(format!("{shown} has {found}, it had {wanted}")).into())
        }
        Err(ecluse_holding::ReadFault::Stopped) => Err(Failure::give_back().into()),
        Err(fault) => Err(Failure::defer(format!("cannot read {shown}: {fault}")).into()),
    }
}

fn answer(program: &str, end: CommandEnd, task: &DepositTask<'_>) -> Result<Answer, DepositFault> {
    let CommandEnd {
        status,
        said,
        complained,
    } = end;
    let words = match (complained.is_empty(), said.is_empty()) {
        (false, _) => format!("{program}: {complained}"),
        (true, false) => format!("{program}: {said}"),
        (true, true) => format!("{program}: {status}"),
    };
    match status.code() {
        Some(0) if said.is_empty() => Ok(Answer::Pending),
        // A line that is no receipt of ours is the name that the repository gives the file.
        Some(0) => Ok(Answer::Receipt(Receipt::parse(&said).unwrap_or(Receipt {
            sha256: task.wanted.sha256.clone(),
            identifier: Some(said.clone()),
            text: said,
        }))),
        Some(BUSY) => Err(DepositFault::Busy(words, None)),
        Some(REFUSED) => Err(DepositFault::Refused(words)),
        _ => Err(DepositFault::Away(words)),
    }
}
