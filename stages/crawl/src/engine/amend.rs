//! What an operator asks of a running job: changes of its order, questions, a pause, the end.

use std::rc::Rc;
use std::time::Duration;

use ecluse_scope::Order;
use ecluse_stage::Failure;

use super::{Ending, Engine, blame, year};
use crate::checkpoint::EndReason;
use crate::control::{self, Request};
use crate::explain::{Explanation, Known};
use crate::fetch_task::now;
use crate::in_force::InForce;
use crate::manners::{budget_of, exception, frontier_settings, set_groups};
use crate::place::write_whole;

impl Engine<'_> {
    /// Heeds what an operator put into the control directory.
    pub(super) async fn heed_control(&mut self) -> Result<(), Failure> {
        for request in control::requests(&self.job.dir)? {
            match request {
                Request::Amend { name, text } => self.amend(&name, &text).await?,
                Request::Bad { name, problem } => self.refuse(&name, &problem)?,
                Request::Ask { name, url } => {
                    let answer = self.explain(&url);
                    control::answer(&self.job.dir, &name, &answer)?;
                }
            }
        }
        match self.link_filter.forced.look_again() {
            Ok(false) => {}
            Ok(true) => {
                tracing::info!(job = self.in_force.order.job, "librarians' rules changed");
                self.note_change("librarians' rules changed")?;
            }
            Err(why) => {
                tracing::warn!(
                    job = self.in_force.order.job,
                    why,
                    "librarians' rules as before"
                );
                self.note_change(&format!("librarians' rules stay as they were: {why}"))?;
            }
        }
        let dir = self.job.dir.path();
        if let Some(told) = control::told(dir, control::END_FILE)
            && self.ending.is_none()
        {
            let how = control::by_whom("ended", &told);
            tracing::info!(job = self.in_force.order.job, how, "told to end");
            self.ending = Some(Ending::Enough(EndReason::ByHand, how));
        }
        let stage = (self.around.stage_paused)()?;
        let paused = control::told(dir, control::PAUSE_FILE).or(stage);
        self.paused = paused.map(|paused| control::by_whom("paused", &paused));
        Ok(())
    }

    /// Reads a change over the order, and puts it in force if it makes sense.
    async fn amend(&mut self, name: &str, text: &str) -> Result<(), Failure> {
        let amended = match self.in_force.order.amend(text, name, &self.job.contact) {
            Ok(amended) => amended,
            Err(error) => return self.refuse(name, &error.to_string()),
        };
        let began = year(self.checkpoint.begun);
        let in_force = InForce::new(self.job, amended.order, Some(&self.in_force));
        let changed = in_force.and_then(|in_force| {
            let order = &in_force.order;
            self.link_filter
                .changed(order, self.job, &self.frontier, began)?;
            Ok(in_force)
        });
        let in_force = match changed {
            Ok(in_force) => in_force,
            Err(error) => return self.refuse(name, &error.reason),
        };
        let changes: Vec<String> = amended.changes.iter().map(ToString::to_string).collect();
        let text = toml::to_string(&in_force.order)
            .map_err(|error| Failure::halt(format!("cannot write the changed order: {error}")))?;
        write_whole(&self.job.dir.order(), text.as_bytes())?;
        self.is_changed = true;
        self.put_in_force(in_force)?;
        for change in &changes {
            tracing::info!(job = self.in_force.order.job, change, "order changed");
            self.note_change(&format!("{name}: {change}"))?;
        }
        self.commit().await?;
        Ok(control::done(&self.job.dir, name, &changes, &[])?)
    }

    fn refuse(&mut self, name: &str, why: &str) -> Result<(), Failure> {
        tracing::warn!(job = self.in_force.order.job, name, why, "change refused");
        self.note_change(&format!("{name} refused: {why}"))?;
        let problems: Vec<String> = why.lines().map(str::to_owned).collect();
        Ok(control::done(&self.job.dir, name, &[], &problems)?)
    }

    /// Swaps the order in force, and tells the frontier what follows for it.
    fn put_in_force(&mut self, in_force: InForce) -> Result<(), Failure> {
        let order = &in_force.order;
        let settings = frontier_settings(order, self.around.capacity);
        self.frontier.set_settings(settings).map_err(blame)?;
        if order.budget != self.in_force.order.budget {
            self.set_exceptions(order)?;
        }
        set_groups(order, &mut self.frontier).map_err(blame)?;
        self.budgeted.clear();
        self.shared.robots.borrow_mut().forget();
        self.in_force = Rc::new(in_force);
        Ok(())
    }

    /// Gives every queue the budget that the order has for its host now. A retired one that has something left comes back.
    fn set_exceptions(&mut self, order: &Order) -> Result<(), Failure> {
        if order.budget.exceptions.is_empty() && self.in_force.order.budget.exceptions.is_empty() {
            return Ok(());
        }
        let mut others = Vec::new();
        let walked = self.frontier.queues(|queue| {
            if queue.budget != budget_of(order, host_of_queue(&queue.name)) {
                others.push(queue.name);
            }
            true
        });
        walked.map_err(blame)?;
        for queue in others {
            let budget = exception(order, host_of_queue(&queue));
            self.frontier.set_budget(&queue, budget).map_err(blame)?;
        }
        Ok(())
    }

    fn explain(&mut self, url: &str) -> Result<Explanation, String> {
        let robots = self.shared.robots.borrow();
        let known = Known {
            order: &self.in_force.order,
            scope: &self.link_filter.scope,
            forced: &self.link_filter.forced,
            robots: &robots,
            logs: &self.job.dir.logs(),
            now: Duration::from_millis(now().0),
        };
        known.explain(&mut self.frontier, url)
    }
}

/// The host in the name of a queue, which may have a port.
pub(crate) fn host_of_queue(queue: &str) -> &str {
    match queue.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => queue,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_name_their_hosts() {
        for (queue, host) in [
            ("a.example", "a.example"),
            ("a.example:8080", "a.example"),
            ("[2001:db8::1]:81", "[2001:db8::1]"),
            ("[2001:db8::1]", "[2001:db8::1]"),
        ] {
            assert_eq!(host_of_queue(queue), host);
        }
    }
}
