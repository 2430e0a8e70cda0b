//! What a reader may take, whatever the file says.

/// The bounds of a reader's memory.
///
/// A reader holds at most about `member_bytes` of inflated bytes, `member_bytes` of input, `prefix_bytes` and
/// `header_bytes` of copies, and the window of the codec (32 KiB for gzip, `zstd_window_log` and the dictionary for
/// zstd).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReaderLimits {
    /// A member that inflates to more is read through a sliding window, and so is a record that is larger.
    pub member_bytes: usize,
    /// A member that inflates to more, and to more than [`BOMB_RATIO`](Self::BOMB_RATIO) times its own size, is damage.
    pub bomb_bytes: u64,
    /// A record header (or an ARC URL-record line) of more bytes is damage.
    pub header_bytes: usize,
    /// A record header of more lines is damage.
    pub header_lines: usize,
    /// How much of the start of a block that is too large for memory stays at hand: HTTP headers must end in it.
    pub prefix_bytes: usize,
    /// A zstd frame that asks for a larger window (as a power of two) is damage.
    pub zstd_window_log: u32,
    /// A zstd dictionary of more bytes is damage.
    pub zstd_dictionary_bytes: usize,
    /// How many damages are kept with their evidence; the others are counted.
    pub damages: usize,
}

impl Default for ReaderLimits {
    fn default() -> Self {
        Self {
            member_bytes: 8 << 20,
            bomb_bytes: 8 << 30,
            header_bytes: 256 << 10,
            header_lines: 1_000,
            prefix_bytes: 256 << 10,
            zstd_window_log: 23,
            zstd_dictionary_bytes: 4 << 20,
            damages: 1_000,
        }
    }
}

impl ReaderLimits {
    /// How much larger than its packed bytes a bomb is. Text and logs stay far below; gzip cannot go beyond 1,032.
    pub const BOMB_RATIO: u64 = 200;

    /// Returns these limits with each one raised to what the reader cannot work without.
    pub(crate) fn workable(self) -> Self {
        let header_bytes = self.header_bytes.max(1 << 10);
        let prefix_bytes = self.prefix_bytes.max(1 << 10);
        Self {
            member_bytes: self
                .member_bytes
                .max(header_bytes + prefix_bytes + (64 << 10)),
            header_bytes,
            prefix_bytes,
            zstd_window_log: self.zstd_window_log.clamp(10, 27),
            ..self
        }
    }
}
