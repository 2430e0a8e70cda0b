//! The scheduler: thousands of questions on their way to several resolvers.
//!
//! One thread, one epoll. A question goes to the resolver with the fewest; one that does not answer in time, or fails, goes to
//! another, until somebody answers or it was tried often enough. What comes back is matched by socket, id and question.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};

use crate::resolver::{Renewed, Resolver, ResolverCounts};
use crate::tcp::TcpLane;
use crate::wire::{FailureKind, Question, Reading, Reply};

/// How often a question is asked of one resolver by TCP.
const TCP_TRIES: u8 = 2;
/// Datagrams that are taken from a socket before the others have their turn.
const DATAGRAMS: usize = 256;
/// When every resolver has been down for this long, there is no use in waiting.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often we look whether somebody is there again.
const WAKE_EVERY: Duration = Duration::from_millis(50);
/// The socket of a TCP connection, where those of UDP are numbered.
const TCP: u64 = 0xffff;

/// What bounds the questions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AskLimits {
    /// Questions on their way at once.
    pub(crate) in_flight: usize,
    /// Questions a second to each resolver; none for as many as there are.
    pub(crate) rate: Option<u32>,
    /// How long an answer is waited for.
    pub(crate) timeout: Duration,
    /// How often a question is asked.
    pub(crate) tries: u8,
}

/// What to ask.
pub(crate) struct Asked {
    /// Comes back with the answer.
    pub(crate) tag: u64,
    pub(crate) question: Question,
    /// Not of this resolver.
    pub(crate) except: Option<usize>,
    /// Rather of this one.
    pub(crate) rather: Option<usize>,
}

/// What came of a question.
pub(crate) struct Answered {
    pub(crate) tag: u64,
    pub(crate) reply: Reply,
    /// The resolver that said so, or was asked last.
    pub(crate) by: usize,
}

/// Asks the resolvers.
pub(crate) struct Asker {
    limits: AskLimits,
    resolvers: Vec<Resolver>,
    /// For each resolver, the questions that are to be sent to it.
    waiting: Vec<VecDeque<u32>>,
    tcp: Vec<Option<TcpLane>>,
    questions: Vec<Option<Pending>>,
    free: Vec<u32>,
    /// Those that nobody is there for.
    stalled: VecDeque<u32>,
    /// When each attempt is over; the wait is the same for all, so they are in order. Most are answered long before.
    due: VecDeque<(Instant, u32, u32)>,
    /// The last attempt's number.
    attempts: u32,
    answered: VecDeque<Answered>,
    /// When we last looked after those.
    woken: Instant,
    turn: usize,
    random: Random,
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
    buffer: Vec<u8>,
}

struct Pending {
    asked: Asked,
    place: Place,
    /// Resolvers that were asked, a bit each.
    tried: u32,
    tries: u8,
    tcp_tries: u8,
    with_edns: bool,
    /// The failure that tells most.
    failure: Option<FailureKind>,
    ede: Vec<u16>,
    /// The number of its attempt, which no other question has had: places are used again within a time-out.
    attempt: u32,
    last: usize,
}

/// Where a question is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Waiting,
    Udp {
        resolver: usize,
        lane: usize,
        id: u16,
    },
    Tcp {
        resolver: usize,
        id: u16,
    },
}

enum Choice {
    Resolver(usize),
    /// Nobody is there at all.
    Stalled,
    /// Nobody is there who may be asked.
    Nobody,
}

impl Asker {
    /// Opens sockets to the resolvers.
    pub(crate) fn open(addresses: &[SocketAddr], limits: AskLimits) -> io::Result<Self> {
        let now = Instant::now();
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut resolvers = Vec::new();
        for (number, address) in addresses.iter().enumerate() {
            let resolver = Resolver::open(*address, limits.rate, now)?;
            for (at, lane) in resolver.lanes.iter().enumerate() {
                let data = event_data(number, at as u64);
                epoll::add(&epoll, &lane.socket, data, epoll::EventFlags::IN)?;
            }
            resolvers.push(resolver);
        }
        Ok(Self {
            limits,
            waiting: resolvers.iter().map(|_| VecDeque::new()).collect(),
            tcp: resolvers.iter().map(|_| None).collect(),
            resolvers,
            questions: Vec::new(),
            free: Vec::new(),
            stalled: VecDeque::new(),
            due: VecDeque::new(),
            attempts: 0,
            answered: VecDeque::new(),
            woken: now,
            turn: 0,
            random: Random::default(),
            epoll,
            events: Vec::with_capacity(64),
            buffer: vec![0; 64 << 10],
        })
    }

    /// Tells whether another question may be asked.
    pub(crate) fn has_room(&self) -> bool {
        self.questions.len() - self.free.len() < self.limits.in_flight
    }

    /// Returns how many questions may be on their way at once.
    pub(crate) fn most_in_flight(&self) -> usize {
        self.limits.in_flight
    }

    /// Returns the resolvers with what came of them.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (SocketAddr, ResolverCounts)> {
        let resolvers = self.resolvers.iter();
        resolvers.map(|resolver| (resolver.address, resolver.counts))
    }

    /// Says why nothing is known of the names: questions were asked, and nobody answered any.
    pub(crate) fn is_unheard(&self) -> Option<String> {
        let counts = self.resolvers.iter().map(|resolver| resolver.counts);
        let is_so = counts.clone().all(|counts| counts.answered == 0)
            && counts.map(|counts| counts.asked).sum::<u64>() > 0;
        is_so.then(|| self.tell_silence())
    }

    fn tell_silence(&self) -> String {
        let told = self.resolvers.iter().map(|resolver| {
            let why = resolver.why_down();
            let why = if why.is_empty() { "no answer" } else { why };
            format!("{} ({why})", resolver.address)
        });
        let told: Vec<String> = told.collect();
        format!("no resolver answers: {}", told.join(", "))
    }

    /// Another resolver knows a name that this one denied.
    pub(crate) fn was_wrong(&mut self, resolver: usize) {
        if let Some(resolver) = self.resolvers.get_mut(resolver) {
            resolver.counts.wrongly_denied += 1;
        }
    }

    /// Says why there is no use in going on: nobody has answered for long.
    pub(crate) fn is_dead(&self) -> Option<String> {
        let mut down = self.resolvers.iter().map(Resolver::down_since);
        let now = Instant::now();
        let is_so = down.all(|since| {
            since.is_some_and(|since| now.saturating_duration_since(since) >= self.patience())
        });
        is_so.then(|| self.tell_silence())
    }

    /// Asks.
    pub(crate) fn ask(&mut self, asked: Asked) {
        let pending = Pending {
            asked,
            place: Place::Waiting,
            tried: 0,
            tries: 0,
            tcp_tries: 0,
            with_edns: true,
            failure: None,
            ede: Vec::new(),
            attempt: 0,
            last: 0,
        };
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => {
                self.questions.push(None);
                u32::try_from(self.questions.len() - 1).expect("questions in flight are bounded")
            }
        };
        self.questions[slot as usize] = Some(pending);
        self.attempt(slot, Instant::now());
    }

    /// Returns an answer that has come.
    pub(crate) fn take(&mut self) -> Option<Answered> {
        self.answered.pop_front()
    }

    /// Sends what may be sent, and takes in what comes within a time.
    ///
    /// # Errors
    /// When the machine has no sockets left or no epoll.
    pub(crate) fn go_on(&mut self, at_most: Duration) -> io::Result<()> {
        let now = Instant::now();
        self.send_waiting(now)?;
        let wait = self.wait(now, at_most);
        let wait = Timespec::try_from(wait).unwrap_or(Timespec {
            tv_sec: 1,
            tv_nsec: 0,
        });
        self.events.clear();
        match epoll::wait(&self.epoll, spare_capacity(&mut self.events), Some(&wait)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let now = Instant::now();
        let events = std::mem::take(&mut self.events);
        for event in &events {
            let data = event.data.u64();
            let (resolver, lane) = ((data >> 16) as usize, data & 0xffff);
            match lane {
                TCP => self.go_on_by_tcp(resolver, now),
                lane => self.receive(resolver, lane as usize, now),
            }
        }
        self.events = events;
        self.expire(now);
        self.wake_stalled(now);
        Ok(())
    }

    fn wait(&self, now: Instant, at_most: Duration) -> Duration {
        if !self.answered.is_empty() {
            return Duration::ZERO;
        }
        let mut wait = match self.stalled.is_empty() {
            true => at_most,
            false => at_most.min(WAKE_EVERY),
        };
        if let Some((due, ..)) = self.due.front() {
            wait = wait.min(due.saturating_duration_since(now));
        }
        for (resolver, waiting) in self.resolvers.iter().zip(&self.waiting) {
            if !waiting.is_empty() && resolver.in_flight < self.window() {
                let turn = resolver.next_turn(now).unwrap_or_default();
                wait = wait.min(turn.max(Duration::from_micros(200)));
            }
        }
        wait
    }

    fn window(&self) -> usize {
        let up = self.resolvers.iter().filter(|resolver| resolver.is_up());
        self.limits.in_flight.div_ceil(up.count().max(1))
    }

    /// Sends a question to somebody, or says that nobody is there.
    fn attempt(&mut self, slot: u32, now: Instant) {
        match self.choose(slot, now) {
            Choice::Resolver(number) => {
                if let Some(pending) = &mut self.questions[slot as usize] {
                    pending.place = Place::Waiting;
                    pending.last = number;
                    pending.tried |= 1 << number;
                    pending.tries += 1;
                }
                self.waiting[number].push_back(slot);
            }
            Choice::Stalled => self.stalled.push_back(slot),
            Choice::Nobody => self.give_up(slot),
        }
    }

    fn choose(&mut self, slot: u32, now: Instant) -> Choice {
        let Some(pending) = &self.questions[slot as usize] else {
            return Choice::Nobody;
        };
        let (except, rather) = (pending.asked.except, pending.asked.rather);
        let tried = pending.tried;
        let may = |number: &usize| Some(*number) != except;
        if !(0..self.resolvers.len()).any(|number| may(&number)) {
            return Choice::Nobody;
        }
        let is_up = |number: &usize| may(number) && self.resolvers[*number].is_up();
        if let Some(number) = rather
            && is_up(&number)
            && tried & (1 << number) == 0
        {
            return Choice::Resolver(number);
        }
        let count = self.resolvers.len();
        self.turn = (self.turn + 1) % count;
        let turn = self.turn;
        let load = |number: &usize| self.waiting[*number].len() + self.resolvers[*number].in_flight;
        let in_turn = || (0..count).map(move |at| (at + turn) % count);
        let untried = in_turn().filter(|number| is_up(number) && tried & (1 << number) == 0);
        let again = || in_turn().filter(is_up).min_by_key(load);
        if let Some(number) = untried.min_by_key(load).or_else(again) {
            return Choice::Resolver(number);
        }
        for number in 0..count {
            if may(&number) && self.resolvers[number].take_probe(now) {
                return Choice::Resolver(number);
            }
        }
        // They may be back in a moment; where somebody else is there they are not waited for any longer.
        let is_given_up = |number: usize| {
            let since = self.resolvers[number].down_since();
            since.is_some_and(|since| now.saturating_duration_since(since) >= self.patience())
        };
        let somebody = self.resolvers.iter().any(Resolver::is_up);
        match somebody && (0..count).filter(may).all(is_given_up) {
            true => Choice::Nobody,
            false => Choice::Stalled,
        }
    }

    fn patience(&self) -> Duration {
        PATIENCE.max(self.limits.timeout * 3)
    }

    fn send_waiting(&mut self, now: Instant) -> io::Result<()> {
        let window = self.window();
        for number in 0..self.resolvers.len() {
            while !self.waiting[number].is_empty() && self.resolvers[number].in_flight < window {
                if !self.resolvers[number].take_turn(now) {
                    break;
                }
                let Some(slot) = self.waiting[number].pop_front() else {
                    break;
                };
                match self.send(slot, number, now)? {
                    Sent::Yes => {}
                    Sent::Later => {
                        self.waiting[number].push_front(slot);
                        break;
                    }
                    Sent::Never(error) => {
                        self.unreachable(number, now, &error);
                        self.ask_another(slot, now);
                    }
                }
            }
        }
        Ok(())
    }

    fn send(&mut self, slot: u32, number: usize, now: Instant) -> io::Result<Sent> {
        let resolver = &mut self.resolvers[number];
        let Some((at, renewed)) = resolver.lane()? else {
            return Ok(Sent::Later);
        };
        if renewed == Renewed::Yes {
            let data = event_data(number, at as u64);
            let socket = &resolver.lanes[at].socket;
            epoll::add(&self.epoll, socket, data, epoll::EventFlags::IN)?;
        }
        let lane = &mut resolver.lanes[at];
        let Some(pending) = &mut self.questions[slot as usize] else {
            return Ok(Sent::Yes);
        };
        let id = lane.take_id(slot, || self.random.number());
        let bytes = pending.asked.question.bytes(id, pending.with_edns);
        match lane.socket.send(&bytes) {
            Ok(_) => {}
            Err(error) => {
                lane.release(id);
                return Ok(match error.kind() {
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Sent::Later,
                    _ => Sent::Never(error),
                });
            }
        }
        pending.place = Place::Udp {
            resolver: number,
            lane: at,
            id,
        };
        resolver.in_flight += 1;
        resolver.counts.asked += 1;
        self.wait_for(slot, now);
        Ok(Sent::Yes)
    }

    /// Gives an attempt that was sent its number and the time when it is over.
    fn wait_for(&mut self, slot: u32, now: Instant) {
        if self.due.len() == self.due.capacity() {
            // What is answered makes room: the list is as long as there are questions on their way, not as there were in
            // the time of a time-out.
            let questions = &self.questions;
            self.due.retain(|(_, slot, attempt)| {
                let pending = questions[*slot as usize].as_ref();
                pending.is_some_and(|pending| pending.attempt == *attempt)
            });
            // Half of it is free then, so that this is done once for many questions.
            self.due.reserve(self.due.len().max(1024));
        }
        self.attempts = self.attempts.wrapping_add(1);
        if let Some(pending) = &mut self.questions[slot as usize] {
            pending.attempt = self.attempts;
            let due = now + self.limits.timeout;
            self.due.push_back((due, slot, self.attempts));
        }
    }

    /// Takes in what came on a socket.
    fn receive(&mut self, number: usize, at: usize, now: Instant) {
        let mut buffer = std::mem::take(&mut self.buffer);
        for _ in 0..DATAGRAMS {
            let lane = &self.resolvers[number].lanes[at];
            match lane.socket.recv(&mut buffer) {
                Ok(bytes) => self.take_datagram(number, at, &buffer[..bytes], now),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.unreachable(number, now, &error);
                    break;
                }
            }
        }
        self.buffer = buffer;
    }

    fn take_datagram(&mut self, number: usize, at: usize, bytes: &[u8], now: Instant) {
        let resolver = &mut self.resolvers[number];
        let id = bytes.first_chunk().map(|id| u16::from_be_bytes(*id));
        let Some(slot) = id.and_then(|id| resolver.lanes[at].question(id)) else {
            // Too late, or nobody's.
            resolver.counts.unfit += 1;
            return;
        };
        let Some(pending) = &self.questions[slot as usize] else {
            return;
        };
        let reading = pending.asked.question.read(bytes);
        if reading == Reading::NotOurs {
            resolver.counts.unfit += 1;
            return;
        }
        self.leave(slot);
        self.take_reading(slot, number, reading, now);
    }

    /// Draws the consequences of an answer to a question that is nowhere any more.
    fn take_reading(&mut self, slot: u32, number: usize, reading: Reading, now: Instant) {
        let resolver = &mut self.resolvers[number];
        if reading == Reading::Garbage {
            resolver.counts.unfit += 1;
            self.fail_attempt(slot, FailureKind::Formerr, now);
            return;
        }
        resolver.counts.answered += 1;
        resolver.has_answered(now);
        let Some(pending) = &mut self.questions[slot as usize] else {
            return;
        };
        match reading {
            Reading::Truncated | Reading::OtherCase => self.ask_by_tcp(slot, number, now),
            Reading::Said(Reply::Failed {
                kind: FailureKind::Formerr,
                ..
            }) if pending.with_edns => {
                // Servers older than EDNS.
                pending.with_edns = false;
                self.waiting[number].push_back(slot);
            }
            Reading::Said(Reply::Failed { kind, ede }) => {
                resolver.counts.failed += 1;
                pending.ede.extend(ede);
                self.fail_attempt(slot, kind, now);
            }
            Reading::Said(reply) => self.answer(slot, reply, number),
            Reading::NotOurs | Reading::Garbage => {}
        }
    }

    fn answer(&mut self, slot: u32, reply: Reply, by: usize) {
        if let Some(pending) = self.questions[slot as usize].take() {
            self.free.push(slot);
            let tag = pending.asked.tag;
            self.answered.push_back(Answered { tag, reply, by });
        }
    }

    /// An attempt came to nothing: another, or the end.
    fn fail_attempt(&mut self, slot: u32, kind: FailureKind, now: Instant) {
        let Some(pending) = &mut self.questions[slot as usize] else {
            return;
        };
        pending.failure = Some(pending.failure.map_or(kind, |before| before.min(kind)));
        let except = pending.asked.except;
        let untried = |(number, resolver): (usize, &Resolver)| {
            resolver.is_up() && Some(number) != except && pending.tried & (1 << number) == 0
        };
        let is_left = self.resolvers.iter().enumerate().any(untried);
        // A packet may be lost; what a resolver says it will say again.
        let is_worth_it = is_left || kind == FailureKind::Timeout;
        if pending.tries < self.limits.tries && is_worth_it {
            self.attempt(slot, now);
        } else {
            self.give_up(slot);
        }
    }

    fn give_up(&mut self, slot: u32) {
        let Some(pending) = &mut self.questions[slot as usize] else {
            return;
        };
        let kind = pending.failure.unwrap_or(FailureKind::Timeout);
        let mut ede = std::mem::take(&mut pending.ede);
        ede.sort_unstable();
        ede.dedup();
        let last = pending.last;
        self.answer(slot, Reply::Failed { kind, ede }, last);
    }

    /// Takes a question from where it is.
    fn leave(&mut self, slot: u32) {
        let Some(pending) = &mut self.questions[slot as usize] else {
            return;
        };
        let place = std::mem::replace(&mut pending.place, Place::Waiting);
        self.attempts = self.attempts.wrapping_add(1);
        pending.attempt = self.attempts;
        match place {
            Place::Waiting => {}
            Place::Udp { resolver, lane, id } => {
                let resolver = &mut self.resolvers[resolver];
                resolver.lanes[lane].release(id);
                resolver.in_flight -= 1;
            }
            Place::Tcp { resolver, id } => {
                if let Some(lane) = &mut self.tcp[resolver] {
                    lane.release(id);
                }
            }
        }
    }

    /// Ends the attempts that have waited long enough.
    fn expire(&mut self, now: Instant) {
        while let Some((due, slot, attempt)) = self.due.front().copied() {
            if due > now {
                break;
            }
            self.due.pop_front();
            let Some(pending) = &self.questions[slot as usize] else {
                continue;
            };
            if pending.attempt != attempt {
                continue;
            }
            let place = pending.place;
            self.leave(slot);
            match place {
                Place::Waiting => {}
                Place::Udp { resolver, .. } => {
                    let timeout = self.limits.timeout;
                    if self.resolvers[resolver].was_silent(now, timeout) {
                        self.move_from(resolver, now);
                    }
                    self.fail_attempt(slot, FailureKind::Timeout, now);
                }
                Place::Tcp { resolver, .. } => {
                    self.close_tcp(resolver, now);
                    self.fail_attempt(slot, FailureKind::Truncated, now);
                }
            }
        }
    }

    /// A resolver cannot be reached: what is on its way to it goes elsewhere.
    fn unreachable(&mut self, number: usize, now: Instant, error: &io::Error) {
        if self.resolvers[number].was_unreachable(now, error) {
            self.move_from(number, now);
            for slot in 0..self.questions.len() {
                let place = self.questions[slot].as_ref().map(|pending| pending.place);
                let slot = slot as u32;
                if matches!(place, Some(Place::Udp { resolver, .. }) if resolver == number) {
                    self.leave(slot);
                    self.ask_another(slot, now);
                }
            }
        }
    }

    /// Asks somebody else; that nobody was there counts for nothing.
    fn ask_another(&mut self, slot: u32, now: Instant) {
        if let Some(pending) = &mut self.questions[slot as usize] {
            pending.tries = pending.tries.saturating_sub(1);
        }
        self.attempt(slot, now);
    }

    /// Lets others have what waits for a resolver; it counts for nothing that it was chosen.
    fn move_from(&mut self, number: usize, now: Instant) {
        for slot in std::mem::take(&mut self.waiting[number]) {
            if let Some(pending) = &mut self.questions[slot as usize] {
                pending.tried &= !(1 << number);
                pending.tries = pending.tries.saturating_sub(1);
            }
            self.attempt(slot, now);
        }
    }

    /// Looks whether somebody is there for what stalled.
    fn wake_stalled(&mut self, now: Instant) {
        if now.saturating_duration_since(self.woken) < WAKE_EVERY {
            return;
        }
        self.woken = now;
        for slot in std::mem::take(&mut self.stalled) {
            self.attempt(slot, now);
        }
    }

    fn ask_by_tcp(&mut self, slot: u32, number: usize, now: Instant) {
        let Some(pending) = &mut self.questions[slot as usize] else {
            return;
        };
        pending.tcp_tries += 1;
        if pending.tcp_tries > TCP_TRIES {
            self.fail_attempt(slot, FailureKind::Truncated, now);
            return;
        }
        if self.tcp[number].is_none() {
            self.tcp[number] = self.open_tcp(number).ok();
        }
        let (Some(lane), Some(pending)) =
            (&mut self.tcp[number], &mut self.questions[slot as usize])
        else {
            self.fail_attempt(slot, FailureKind::Truncated, now);
            return;
        };
        if !lane.has_room() {
            // By UDP once more, which leads here again.
            self.waiting[number].push_back(slot);
            return;
        }
        let id = lane.take_id(slot, || self.random.number());
        lane.queue(&pending.asked.question.bytes(id, pending.with_edns));
        pending.place = Place::Tcp {
            resolver: number,
            id,
        };
        self.resolvers[number].counts.by_tcp += 1;
        self.wait_for(slot, now);
        self.go_on_by_tcp(number, now);
    }

    fn open_tcp(&self, number: usize) -> io::Result<TcpLane> {
        let lane = TcpLane::open(self.resolvers[number].address)?;
        let flags = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::ET;
        epoll::add(&self.epoll, lane.stream(), event_data(number, TCP), flags)?;
        Ok(lane)
    }

    fn go_on_by_tcp(&mut self, number: usize, now: Instant) {
        let Some(mut lane) = self.tcp[number].take() else {
            return;
        };
        let mut messages = Vec::new();
        let ended = lane.go_on(&mut |lane, message| {
            let id = message.first_chunk().map(|id| u16::from_be_bytes(*id));
            if let Some((id, slot)) = id.and_then(|id| Some((id, lane.question(id)?))) {
                lane.release(id);
                messages.push((slot, message.to_vec()));
            }
        });
        self.tcp[number] = Some(lane);
        for (slot, message) in messages {
            self.leave(slot);
            let reading = match &self.questions[slot as usize] {
                Some(pending) => pending.asked.question.read(&message),
                None => continue,
            };
            match reading {
                // Nobody else speaks on this connection.
                Reading::Truncated | Reading::OtherCase | Reading::NotOurs => {
                    self.fail_attempt(slot, FailureKind::Truncated, now);
                }
                reading => self.take_reading(slot, number, reading, now),
            }
        }
        if let Err(end) = ended {
            self.tcp[number] = None;
            self.ask_again_by_tcp(end.questions, number, now);
        }
    }

    fn close_tcp(&mut self, number: usize, now: Instant) {
        if let Some(lane) = self.tcp[number].take() {
            self.ask_again_by_tcp(lane.questions(), number, now);
        }
    }

    /// Asks what was on its way on a connection that is gone, on the next one.
    fn ask_again_by_tcp(&mut self, slots: Vec<u32>, number: usize, now: Instant) {
        for slot in slots {
            self.leave(slot);
            self.ask_by_tcp(slot, number, now);
        }
    }
}

enum Sent {
    Yes,
    Later,
    Never(io::Error),
}

fn event_data(resolver: usize, lane: u64) -> epoll::EventData {
    epoll::EventData::new_u64((resolver as u64) << 16 | lane)
}

/// Numbers that nobody can guess.
#[derive(Default)]
struct Random {
    bytes: Vec<u8>,
}

impl Random {
    fn number(&mut self) -> u16 {
        if self.bytes.len() < 2 {
            self.bytes.resize(4096, 0);
            getrandom::fill(&mut self.bytes).expect("the system gives random bytes");
        }
        let at = self.bytes.len() - 2;
        let number = u16::from_le_bytes([self.bytes[at], self.bytes[at + 1]]);
        self.bytes.truncate(at);
        number
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, UdpSocket};

    use super::*;
    use crate::wire::RecordKind;

    const TIMEOUT: Duration = Duration::from_secs(3600);

    /// A server that is answered for by the test, and an asker that asks it.
    fn pair() -> (UdpSocket, Asker) {
        let server = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let limits = AskLimits {
            in_flight: 10,
            rate: None,
            timeout: TIMEOUT,
            tries: 1,
        };
        let asker = Asker::open(&[server.local_addr().unwrap()], limits).unwrap();
        (server, asker)
    }

    fn ask(asker: &mut Asker) {
        asker.ask(Asked {
            tag: 7,
            question: Question::new("exemple.fr", RecordKind::A).unwrap(),
            except: None,
            rather: None,
        });
        asker.go_on(Duration::ZERO).unwrap();
    }

    /// Says that the name does not exist, and waits until that has come.
    fn deny(server: &UdpSocket, asker: &mut Asker) {
        let mut bytes = [0; 512];
        let (length, from) = server.recv_from(&mut bytes).unwrap();
        bytes[2] |= 0x80;
        bytes[3] = 3;
        server.send_to(&bytes[..length], from).unwrap();
        while asker.take().is_none() {
            asker.go_on(Duration::from_millis(10)).unwrap();
        }
    }

    #[test]
    fn the_time_of_a_question_that_was_answered_ends_no_other() {
        let (server, mut asker) = pair();
        ask(&mut asker);
        let (due, first, _) = asker.due[0];
        deny(&server, &mut asker);
        ask(&mut asker);
        let (_, second, _) = asker.due[1];
        assert_eq!(first, second, "the second one has the place of the first");
        asker.expire(due);
        assert!(asker.take().is_none());
        assert_eq!(asker.counts().next().unwrap().1.silent, 0);
        asker.expire(due + TIMEOUT);
        assert!(asker.take().is_some(), "its own time does");
    }

    #[test]
    fn questions_that_were_answered_take_no_memory() {
        let (server, mut asker) = pair();
        for _ in 0..5000 {
            ask(&mut asker);
            deny(&server, &mut asker);
        }
        assert!(asker.due.capacity() < 4096, "{}", asker.due.capacity());
        assert_eq!(asker.questions.len(), 1);
    }
}
