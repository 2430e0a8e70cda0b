//! A fingerprint of a text that differs in few bits when the text differs in few words.

/// Counts the bits of words; [`Simhash::finish`] gives the fingerprint.
pub(crate) struct Simhash {
    balance: [i32; 64],
    words: u64,
}

impl Simhash {
    pub(crate) fn new() -> Self {
        Self {
            balance: [0; 64],
            words: 0,
        }
    }

    /// Counts a word by its hash.
    pub(crate) fn add(&mut self, word: u64) {
        self.words += 1;
        for (bit, balance) in self.balance.iter_mut().enumerate() {
            *balance += (((word >> bit) & 1) as i32) * 2 - 1;
        }
    }

    /// Returns the fingerprint: 0 for a text without words.
    pub(crate) fn finish(&self) -> u64 {
        if self.words == 0 {
            return 0;
        }
        let bits = self.balance.iter().enumerate();
        bits.fold(0, |hash, (bit, balance)| {
            hash | (u64::from(*balance > 0) << bit)
        })
    }
}

/// Returns in how many bits two fingerprints differ.
pub fn simhash_distance(one: u64, other: u64) -> u32 {
    (one ^ other).count_ones()
}

/// Returns the hash of a word: FNV-1a, its bits mixed. It stands in files, so it never changes.
pub(crate) fn word_hash(word: &[u8]) -> u64 {
    let hash = word.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte.to_ascii_lowercase())).wrapping_mul(0x0000_0100_0000_01b3)
    });
    mixed(hash)
}

/// The last step of MurmurHash3: every bit depends on all.
pub(crate) fn mixed(mut hash: u64) -> u64 {
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> u64 {
        let mut simhash = Simhash::new();
        for word in text.split_whitespace() {
            simhash.add(word_hash(word.as_bytes()));
        }
        simhash.finish()
    }

    #[test]
    fn few_words_make_few_bits() {
        let words: Vec<String> = (0..400).map(|n| format!("word{}", n % 97)).collect();
        let text = words.join(" ");
        let near = text.replace("word13 ", "other ");
        let far: String = (0..400).map(|n| format!("thing{} ", n % 89)).collect();
        assert_eq!(of(&text), of(&text.to_uppercase()));
        assert!(simhash_distance(of(&text), of(&near)) < 12);
        assert!(simhash_distance(of(&text), of(&far)) > 16);
        assert_eq!(of(""), 0);
        // It stands in files.
        assert_eq!(of("lock gate water"), 0x7397_fe04_09b4_6fd0);
    }
}
