//! SHA-512 of eight files at a time, on one core.
//!
//! One digest is a chain of steps that wait for each other; a processor with AVX-512 does eight chains in the time of little more
//! than one. The lanes are plain arrays: the compiler makes vectors of them where it may, and `pulp` asks the processor whether it
//! may. Files of different lengths share the lanes: one that ends makes room for the next. `docs/decisions/0018` has the figures.

use std::fmt::Write;

use pulp::{Arch, NullaryFnOnce};

/// So many files at a time.
pub(crate) const LANES: usize = 8;
/// How much is hashed at a time.
pub(crate) const BLOCK_BYTES: usize = 128;

/// A word of each lane.
type Words = [u64; LANES];

/// Digests under way, one in each lane.
pub(crate) struct Lanes {
    arch: Arch,
    state: [Words; 8],
}

impl Lanes {
    /// Returns lanes, where this processor has them.
    pub(crate) fn new() -> Option<Self> {
        let arch = Arch::new();
        is_wide(&arch).then_some(Self {
            arch,
            state: [[0; LANES]; 8],
        })
    }

    /// Begins a digest in a lane.
    pub(crate) fn begin(&mut self, lane: usize) {
        for (words, first) in self.state.iter_mut().zip(FIRST) {
            words[lane] = first;
        }
    }

    /// Hashes so many blocks of each lane; what is in a lane that nobody began does not matter.
    pub(crate) fn update(&mut self, data: &[&[u8]; LANES], blocks: usize) {
        self.arch.dispatch(Blocks {
            state: &mut self.state,
            data,
            blocks,
        });
    }

    /// Returns the digest in a lane whose last block was hashed, in lower-case hex.
    pub(crate) fn finish(&self, lane: usize) -> String {
        let mut hex = String::with_capacity(128);
        for words in &self.state {
            write!(hex, "{:016x}", words[lane]).expect("a String takes everything");
        }
        hex
    }
}

/// Tells whether eight lanes are faster than one. With AVX2 they are not: sixteen registers are too few.
#[cfg(target_arch = "x86_64")]
fn is_wide(arch: &Arch) -> bool {
    matches!(arch, Arch::V4(_))
}

#[cfg(not(target_arch = "x86_64"))]
fn is_wide(_: &Arch) -> bool {
    false
}

/// Returns what follows the last bytes of a file of this length, so that whole blocks come of it (FIPS 180-4, 5.1.2).
pub(crate) fn padding(length: u64) -> Vec<u8> {
    let rest = (length % BLOCK_BYTES as u64) as usize;
    let blocks = if rest + 17 <= BLOCK_BYTES { 1 } else { 2 };
    let mut padding = vec![0; blocks * BLOCK_BYTES - rest];
    padding[0] = 0x80;
    let at = padding.len() - 16;
    padding[at..].copy_from_slice(&(u128::from(length) * 8).to_be_bytes());
    padding
}

struct Blocks<'a> {
    state: &'a mut [Words; 8],
    data: &'a [&'a [u8]; LANES],
    blocks: usize,
}

impl NullaryFnOnce for Blocks<'_> {
    type Output = ();

    // Inlined, it is compiled for the vectors of the caller.
    #[inline(always)]
    fn call(self) {
        for block in 0..self.blocks {
            let mut schedule = [[0; LANES]; 16];
            for (lane, data) in self.data.iter().enumerate() {
                let bytes = &data[block * BLOCK_BYTES..][..BLOCK_BYTES];
                let (words, _) = bytes.as_chunks::<8>();
                for (slot, word) in schedule.iter_mut().zip(words) {
                    slot[lane] = u64::from_be_bytes(*word);
                }
            }
            compress(self.state, &mut schedule);
        }
    }
}

#[inline(always)]
fn compress(state: &mut [Words; 8], schedule: &mut [Words; 16]) {
    let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = *state;
    for (step, constant) in ROUND.into_iter().enumerate() {
        if step >= 16 {
            let near = each(schedule[(step + 1) & 15], |x| {
                x.rotate_right(1) ^ x.rotate_right(8) ^ (x >> 7)
            });
            let far = each(schedule[(step + 14) & 15], |x| {
                x.rotate_right(19) ^ x.rotate_right(61) ^ (x >> 6)
            });
            let known = sum(schedule[step & 15], schedule[(step + 9) & 15]);
            schedule[step & 15] = sum(known, sum(near, far));
        }
        let word = each(schedule[step & 15], |x| x.wrapping_add(constant));
        let turned = each(e, |x| {
            x.rotate_right(14) ^ x.rotate_right(18) ^ x.rotate_right(41)
        });
        let chosen = three(e, f, g, |x, y, z| (x & y) ^ (!x & z));
        let first = sum(sum(h, turned), sum(chosen, word));
        let turned = each(a, |x| {
            x.rotate_right(28) ^ x.rotate_right(34) ^ x.rotate_right(39)
        });
        let most = three(a, b, c, |x, y, z| (x & y) ^ (x & z) ^ (y & z));
        (h, g, f, e) = (g, f, e, sum(d, first));
        (d, c, b, a) = (c, b, a, sum(first, sum(turned, most)));
    }
    for (words, more) in state.iter_mut().zip([a, b, c, d, e, f, g, h]) {
        *words = sum(*words, more);
    }
}

#[inline(always)]
fn each(words: Words, change: impl Fn(u64) -> u64) -> Words {
    let mut changed = [0; LANES];
    for lane in 0..LANES {
        changed[lane] = change(words[lane]);
    }
    changed
}

#[inline(always)]
fn three(one: Words, two: Words, last: Words, change: impl Fn(u64, u64, u64) -> u64) -> Words {
    let mut changed = [0; LANES];
    for lane in 0..LANES {
        changed[lane] = change(one[lane], two[lane], last[lane]);
    }
    changed
}

#[inline(always)]
fn sum(one: Words, other: Words) -> Words {
    three(one, other, other, |x, y, _| x.wrapping_add(y))
}

/// What a digest begins with (FIPS 180-4, 5.3.5).
const FIRST: [u64; 8] = [
    0x6a09_e667_f3bc_c908,
    0xbb67_ae85_84ca_a73b,
    0x3c6e_f372_fe94_f82b,
    0xa54f_f53a_5f1d_36f1,
    0x510e_527f_ade6_82d1,
    0x9b05_688c_2b3e_6c1f,
    0x1f83_d9ab_fb41_bd6b,
    0x5be0_cd19_137e_2179,
];

/// What is added in each step (FIPS 180-4, 4.2.3).
const ROUND: [u64; 80] = [
    0x428a_2f98_d728_ae22,
    0x7137_4491_23ef_65cd,
    0xb5c0_fbcf_ec4d_3b2f,
    0xe9b5_dba5_8189_dbbc,
    0x3956_c25b_f348_b538,
    0x59f1_11f1_b605_d019,
    0x923f_82a4_af19_4f9b,
    0xab1c_5ed5_da6d_8118,
    0xd807_aa98_a303_0242,
    0x1283_5b01_4570_6fbe,
    0x2431_85be_4ee4_b28c,
    0x550c_7dc3_d5ff_b4e2,
    0x72be_5d74_f27b_896f,
    0x80de_b1fe_3b16_96b1,
    0x9bdc_06a7_25c7_1235,
    0xc19b_f174_cf69_2694,
    0xe49b_69c1_9ef1_4ad2,
    0xefbe_4786_384f_25e3,
    0x0fc1_9dc6_8b8c_d5b5,
    0x240c_a1cc_77ac_9c65,
    0x2de9_2c6f_592b_0275,
    0x4a74_84aa_6ea6_e483,
    0x5cb0_a9dc_bd41_fbd4,
    0x76f9_88da_8311_53b5,
    0x983e_5152_ee66_dfab,
    0xa831_c66d_2db4_3210,
    0xb003_27c8_98fb_213f,
    0xbf59_7fc7_beef_0ee4,
    0xc6e0_0bf3_3da8_8fc2,
    0xd5a7_9147_930a_a725,
    0x06ca_6351_e003_826f,
    0x1429_2967_0a0e_6e70,
    0x27b7_0a85_46d2_2ffc,
    0x2e1b_2138_5c26_c926,
    0x4d2c_6dfc_5ac4_2aed,
    0x5338_0d13_9d95_b3df,
    0x650a_7354_8baf_63de,
    0x766a_0abb_3c77_b2a8,
    0x81c2_c92e_47ed_aee6,
    0x9272_2c85_1482_353b,
    0xa2bf_e8a1_4cf1_0364,
    0xa81a_664b_bc42_3001,
    0xc24b_8b70_d0f8_9791,
    0xc76c_51a3_0654_be30,
    0xd192_e819_d6ef_5218,
    0xd699_0624_5565_a910,
    0xf40e_3585_5771_202a,
    0x106a_a070_32bb_d1b8,
    0x19a4_c116_b8d2_d0c8,
    0x1e37_6c08_5141_ab53,
    0x2748_774c_df8e_eb99,
    0x34b0_bcb5_e19b_48a8,
    0x391c_0cb3_c5c9_5a63,
    0x4ed8_aa4a_e341_8acb,
    0x5b9c_ca4f_7763_e373,
    0x682e_6ff3_d6b2_b8a3,
    0x748f_82ee_5def_b2fc,
    0x78a5_636f_4317_2f60,
    0x84c8_7814_a1f0_ab72,
    0x8cc7_0208_1a64_39ec,
    0x90be_fffa_2363_1e28,
    0xa450_6ceb_de82_bde9,
    0xbef9_a3f7_b2c6_7915,
    0xc671_78f2_e372_532b,
    0xca27_3ece_ea26_619c,
    0xd186_b8c7_21c0_c207,
    0xeada_7dd6_cde0_eb1e,
    0xf57d_4f7f_ee6e_d178,
    0x06f0_67aa_7217_6fba,
    0x0a63_7dc5_a2c8_98a6,
    0x113f_9804_bef9_0dae,
    0x1b71_0b35_131c_471b,
    0x28db_77f5_2304_7d84,
    0x32ca_ab7b_40c7_2493,
    0x3c9e_be0a_15c9_bebc,
    0x431d_67c4_9c10_0d4c,
    0x4cc5_d4be_cb3e_42b6,
    0x597f_299c_fc65_7e2a,
    0x5fcb_6fab_3ad6_faec,
    0x6c44_198c_4a47_5817,
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DigestAlgorithm;

    /// Every length of the last blocks, in every lane, beside seven others: as ring has it. Where this processor has no
    /// vectors for it, the same code is slower and must still be right.
    #[test]
    fn eight_digests_are_those_of_eight_files() {
        let texts: Vec<Vec<u8>> = (0..600_usize)
            .map(|length| (0..length).map(|at| (at * 7 + length) as u8).collect())
            .collect();
        let mut lanes = Lanes {
            arch: Arch::new(),
            state: [[0; LANES]; 8],
        };
        for group in texts.chunks(LANES) {
            let padded: Vec<Vec<u8>> = group
                .iter()
                .map(|text| [text.clone(), padding(text.len() as u64)].concat())
                .collect();
            let most = padded.iter().map(Vec::len).max().unwrap();
            for lane in 0..LANES {
                lanes.begin(lane);
            }
            for at in (0..most).step_by(BLOCK_BYTES) {
                let data: [&[u8]; LANES] = std::array::from_fn(|lane| {
                    let text = &padded[lane];
                    &text[at.min(text.len() - BLOCK_BYTES)..]
                });
                lanes.update(&data, 1);
                for (lane, text) in padded.iter().enumerate() {
                    if at + BLOCK_BYTES == text.len() {
                        let wanted = DigestAlgorithm::Sha512.digest(&group[lane]);
                        assert_eq!(lanes.finish(lane), wanted, "{}", group[lane].len());
                    }
                }
            }
        }
    }
}
