//! What listens while a response arrives.

use std::ops::ControlFlow;

use crate::head::Head;

/// Listens to one response. Either call may end the fetch: what came until then is kept, as truncated.
pub trait Tap: Send {
    /// Hears the head of the final response, before the body.
    fn head(&mut self, head: &Head) -> ControlFlow<()> {
        let _ = head;
        ControlFlow::Continue(())
    }

    /// Hears the next piece of the payload: transfer encoding removed, content encoding kept.
    fn payload(&mut self, piece: &[u8]) -> ControlFlow<()> {
        let _ = piece;
        ControlFlow::Continue(())
    }
}

/// Listens to nothing.
impl Tap for () {}

/// Keeps the payload.
impl Tap for Vec<u8> {
    fn payload(&mut self, piece: &[u8]) -> ControlFlow<()> {
        self.extend_from_slice(piece);
        ControlFlow::Continue(())
    }
}
