//! Generates inputs from seeds.

/// Longest input: longer ones only cost time.
const LONGEST: usize = 64 * 1024;

/// Boundary values of length fields.
const EDGES: &[u64] = &[
    0,
    1,
    0x7f,
    0x80,
    0xff,
    0x7fff,
    0xffff,
    0x7fff_ffff,
    0xffff_ffff,
    u64::MAX >> 1,
    u64::MAX,
];

/// Number of kept inputs.
const MOST: usize = 4096;

/// A stream of inputs, each a mutated seed or a mutation of what was kept.
pub(crate) struct Mutator {
    corpus: Vec<Vec<u8>>,
    state: u64,
}

impl Mutator {
    pub(crate) fn new(seeds: &[&[u8]], seed: u64) -> Self {
        // Xorshift stays at zero for ever.
        Self {
            corpus: seeds.iter().map(|seed| seed.to_vec()).collect(),
            state: seed | 1,
        }
    }

    /// Keeps an input, to be mutated further.
    pub(crate) fn keep(&mut self, input: Vec<u8>) {
        if self.corpus.len() < MOST {
            self.corpus.push(input);
        }
    }

    /// Returns the number of inputs that are mutated.
    pub(crate) fn kept(&self) -> usize {
        self.corpus.len()
    }

    /// Returns the next input: a seed after one to sixteen mutations.
    pub(crate) fn next_input(&mut self) -> Vec<u8> {
        let mut input = self.seed();
        for _ in 0..=self.below(16) {
            self.change(&mut input);
        }
        input.truncate(LONGEST);
        input
    }

    fn seed(&mut self) -> Vec<u8> {
        let at = self.below(self.corpus.len());
        self.corpus.get(at).cloned().unwrap_or_default()
    }

    fn change(&mut self, input: &mut Vec<u8>) {
        let at = self.below(input.len() + 1);
        let to = at + self.below(input.len() - at + 1);
        match self.below(8) {
            0 => flip(input, at, 1 << self.below(8)),
            1 => flip(input, at, self.random().to_le_bytes()[0]),
            2 => input.insert(at, self.random().to_le_bytes()[0]),
            3 => drop(input.drain(at..to)),
            4 => {
                let copy = input[at..to].to_vec();
                input.splice(at..at, copy);
            }
            5 => {
                let other = self.seed();
                input.splice(at..to, other);
            }
            6 => self.write_edge(input, at),
            _ => input.splice(at..at, vec![b'['; self.below(512)]).for_each(drop),
        }
        input.truncate(LONGEST);
    }

    fn write_edge(&mut self, input: &mut [u8], at: usize) {
        let edge = EDGES[self.below(EDGES.len())];
        let width = 1 << self.below(4);
        let bytes = if self.below(2) == 0 {
            edge.to_le_bytes()
        } else {
            edge.swap_bytes().to_be_bytes()
        };
        for (slot, byte) in input.iter_mut().skip(at).zip(bytes.iter().take(width)) {
            *slot = *byte;
        }
    }

    /// Xorshift: random enough, and one line.
    fn random(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.random() % u64::try_from(limit.max(1)).unwrap_or(1)).unwrap_or(0)
    }
}

fn flip(input: &mut [u8], at: usize, mask: u8) {
    if let Some(byte) = input.get_mut(at) {
        *byte ^= mask;
    }
}
