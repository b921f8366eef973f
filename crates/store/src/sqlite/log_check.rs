//! Reads the log (WAL) of a database before SQLite does, to find damage in its middle.
//!
//! SQLite uses the frames of a log up to the first with a wrong checksum, and drops the rest silently. That is right
//! for a transaction that a crash interrupted. It is wrong for a damaged sector: transactions acknowledged after it
//! would be lost.
//!
//! What must stay true: a log that a crash left behind opens. A crash interrupts one transaction, which has at most one
//! commit frame. Frames after that with the salts of this log belong to complete transactions.
//!
//! The format: <https://www.sqlite.org/fileformat2.html#the_write_ahead_log>.

use std::{
    fs::File,
    io::{self, BufReader, ErrorKind, Read},
    path::Path,
};

const HEADER: usize = 32;
const FRAME_HEADER: usize = 24;
/// The last bit says that checksums use big-endian words.
const MAGIC: u32 = 0x377f_0682;

/// The result of the check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// SQLite would drop nothing, or only uncommitted frames.
    Sound,
    /// The last transaction has a wrong checksum: a crash interrupted it, or its frames are damaged.
    LastCut {
        /// The first bad frame, from 1.
        frame: u64,
    },
    /// Complete transactions follow a bad frame.
    Damaged {
        /// The bad frame, from 1.
        frame: u64,
        /// How many transactions SQLite would drop, at least.
        lost: u64,
    },
}

/// Checks the log at `path`, if it exists.
pub(super) fn check(path: &Path) -> io::Result<Found> {
    match File::open(path) {
        Ok(file) => read(BufReader::with_capacity(1 << 20, file)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Found::Sound),
        Err(error) => Err(error),
    }
}

fn read(mut log: impl Read) -> io::Result<Found> {
    let mut header = [0; HEADER];
    if !fill(&mut log, &mut header)? {
        return Ok(Found::Sound);
    }
    let magic = word(&header, 0);
    let page = word(&header, 8) as usize;
    let mut sum = Sum::new(magic & 1 == 1);
    sum.add(&header[..24]);
    // A bad header: SQLite uses nothing of such a log. The header is written and synced before the first frame.
    if magic & !1 != MAGIC || !page.is_power_of_two() || !(512..=65536).contains(&page) || !sum.is(&header[24..]) {
        return Ok(Found::Sound);
    }
    let salts = &header[16..24];
    let mut frame = vec![0; FRAME_HEADER + page];
    let (mut number, mut bad, mut commits) = (0, None, 0);
    while fill(&mut log, &mut frame)? {
        number += 1;
        let ours = &frame[8..16] == salts;
        if bad.is_none() {
            sum.add(&frame[..8]);
            sum.add(&frame[FRAME_HEADER..]);
            if ours && sum.is(&frame[16..24]) {
                continue;
            }
            bad = Some(number);
        }
        // The size of the database after a commit; 0 in other frames.
        commits += u64::from(ours && word(&frame, 4) > 0);
    }
    Ok(match (bad, commits) {
        (None, _) | (_, 0) => Found::Sound,
        (Some(frame), 1) => Found::LastCut { frame },
        (Some(frame), lost) => Found::Damaged { frame, lost },
    })
}

/// Fills the buffer; false if the input ends before.
fn fill(from: &mut impl Read, buffer: &mut [u8]) -> io::Result<bool> {
    match from.read_exact(buffer) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// The running checksum of a log.
struct Sum {
    big_endian: bool,
    words: (u32, u32),
}

impl Sum {
    fn new(big_endian: bool) -> Sum {
        Sum {
            big_endian,
            words: (0, 0),
        }
    }

    fn add(&mut self, bytes: &[u8]) {
        let (mut one, mut two) = self.words;
        for pair in bytes.chunks_exact(8) {
            let word = |at: usize| {
                let bytes = [pair[at], pair[at + 1], pair[at + 2], pair[at + 3]];
                match self.big_endian {
                    true => u32::from_be_bytes(bytes),
                    false => u32::from_le_bytes(bytes),
                }
            };
            one = one.wrapping_add(word(0)).wrapping_add(two);
            two = two.wrapping_add(word(4)).wrapping_add(one);
        }
        self.words = (one, two);
    }

    /// Whether these eight bytes are the checksum.
    fn is(&self, bytes: &[u8]) -> bool {
        (word(bytes, 0), word(bytes, 4)) == self.words
    }
}
