//! The paged KV cache of a server of language models, in blocks of the machine's memory: each CPU
//! serves some sequences, gives each of them one token after the other, and takes a block for each
//! layer whenever the tokens of the last ones are full. When a sequence ends, all its blocks are
//! freed, and the next one begins with those of its prompt. A refused block preempts the youngest
//! sequence, which begins again.
//!
//! After Kwon et al., Efficient Memory Management for Large Language Model Serving with
//! PagedAttention, SOSP 2023. Shared prefixes are left out.

use zonal_core::types::Pfn;

use super::kind::{Kind, Param, order};
use crate::cost::contents::Access;
use crate::provenance::{Provenance, given};
use crate::sim::Lab;
use crate::sim::{Program, Turn};
use crate::units::{MIB_PAGES, PAGE_LINES, US_NS};

pub(super) const KIND: Kind = Kind {
    name: "kv-cache",
    about: "sequences of an inference server: a block for each layer and so many tokens, and all \
            of a sequence freed at its end",
    params: &[
        Param {
            name: "sequences",
            about: "sequences of each CPU",
            default: 16,
            min: 1,
            max: 4096,
            from: Provenance::estimated("a batch of some hundred over the CPUs that serve it"),
        },
        Param {
            name: "layers",
            about: "blocks that are taken together: one for each layer",
            default: 32,
            min: 1,
            max: 1024,
            from: Provenance::sourced("Llama 3 8B: 32 layers"),
        },
        Param {
            name: "tokens",
            about: "tokens of a block",
            default: 16,
            min: 1,
            max: 4096,
            from: Provenance::sourced("PagedAttention, SOSP 2023: 16 by default"),
        },
        Param {
            name: "order",
            about: "order of each block",
            default: 4,
            min: 0,
            max: 9,
            from: Provenance::sourced(
                "Llama 3 8B: keys and values of 8 heads of 128 in 16 bits, 4 KiB for a token and \
                 a layer; 16 tokens",
            ),
        },
        Param {
            name: "prompt",
            about: "tokens of a prompt, on average; at random up to twice as many",
            default: 161,
            min: 1,
            max: 1 << 17,
            from: Provenance::sourced("PagedAttention, SOSP 2023, of ShareGPT: 161 tokens"),
        },
        Param {
            name: "output",
            about: "tokens of an answer, on average; at random up to twice as many",
            default: 338,
            min: 1,
            max: 1 << 17,
            from: Provenance::sourced("PagedAttention, SOSP 2023, of ShareGPT: 338 tokens"),
        },
        Param {
            name: "step_us",
            about: "microseconds until each sequence of a CPU has its next token",
            default: 10_000,
            min: 1,
            max: 10_000_000,
            from: Provenance::estimated("a model of 8 billion weights at 2 TB/s: 8 ms, and rest"),
        },
    ],
    make: |values, cpus| Box::new(KvCache::new(cpus, values)),
};

given! {
    /// Sequences hold at most one such part of memory at the beginning.
    BEGUN_PART: u64 = 2,
        Provenance::estimated("the other half is for what comes");
    /// Until a server that got no block asks again.
    WAITS_NS: u64 = 1_000,
        Provenance::estimated("it looks for what else it can do");
}

/// Sequences at work.
#[derive(Debug)]
pub struct KvCache {
    numbers: Numbers,
    cpus: Vec<Server>,
}

#[derive(Clone, Copy, Debug)]
struct Numbers {
    layers: usize,
    tokens: u64,
    order: u64,
    prompt: u64,
    output: u64,
    token_ns: u64,
}

#[derive(Clone, Debug, Default)]
struct Server {
    sequences: Vec<Sequence>,
    /// The one that is given a token next.
    next: usize,
    /// Blocks of ended sequences.
    frees: Vec<Pfn>,
}

#[derive(Clone, Debug, Default)]
struct Sequence {
    blocks: Vec<Pfn>,
    /// Tokens that it has, and will have.
    has: u64,
    ends: u64,
    /// Steps since it began.
    age: u64,
}

impl KvCache {
    /// With the numbers of [`KIND`].
    fn new(cpus: u32, values: &[u64]) -> KvCache {
        let [sequences, layers, tokens, order, prompt, output, step_us] = *values else {
            unreachable!("a workload has the numbers of its kind")
        };
        let layers = layers as usize;
        let token_ns = step_us * US_NS / sequences;
        let server = Server {
            sequences: vec![Sequence::default(); sequences as usize],
            ..Server::default()
        };
        KvCache {
            numbers: Numbers { layers, tokens, order, prompt, output, token_ns },
            cpus: vec![server; cpus as usize],
        }
    }
}

impl Numbers {
    /// The next sequence.
    fn draw(&self, lab: &mut Lab<'_>) -> Sequence {
        let has = 1 + lab.random_below(2 * self.prompt);
        let ends = has + 1 + lab.random_below(2 * self.output);
        Sequence { has, ends, ..Sequence::default() }
    }

    /// Blocks of so many tokens.
    fn blocks(&self, tokens: u64) -> usize {
        tokens.div_ceil(self.tokens) as usize * self.layers
    }
}

impl Server {
    /// Takes the blocks of the next layers of a sequence. Returns whether it has all it needs.
    fn grow(&mut self, lab: &mut Lab<'_>, numbers: &Numbers, at: usize) -> bool {
        let sequence = &mut self.sequences[at];
        let needs = numbers.blocks(sequence.has);
        for _ in 0..numbers.layers.min(needs - sequence.blocks.len().min(needs)) {
            match lab.alloc(order(numbers.order)) {
                Some(block) => sequence.blocks.push(block),
                None => {
                    self.preempt();
                    return false;
                }
            }
        }
        sequence.blocks.len() >= needs
    }

    /// The youngest sequence that has blocks gives them back, and begins again.
    fn preempt(&mut self) {
        let holding = self.sequences.iter_mut().filter(|sequence| !sequence.blocks.is_empty());
        if let Some(youngest) = holding.min_by_key(|sequence| sequence.age) {
            self.frees.append(&mut youngest.blocks);
            youngest.age = 0;
        }
    }

    /// One step: frees, blocks for one token's layers, or a token.
    fn step(&mut self, lab: &mut Lab<'_>, numbers: &Numbers) {
        if !self.frees.is_empty() {
            let some = self.frees.len().min(numbers.layers);
            let rest = self.frees.split_off(some);
            let frees = std::mem::replace(&mut self.frees, rest);
            return frees.into_iter().for_each(|block| lab.free(block, order(numbers.order)));
        }
        let at = self.next;
        if self.sequences[at].ends == 0 {
            self.sequences[at] = numbers.draw(lab);
        }
        if !self.grow(lab, numbers, at) {
            return lab.user_ns(WAITS_NS);
        }
        lab.user_ns(numbers.token_ns);
        let sequence = &mut self.sequences[at];
        let last = sequence.blocks.len().saturating_sub(numbers.layers);
        let lines = (PAGE_LINES << numbers.order) / numbers.tokens;
        for block in &sequence.blocks[last..] {
            lab.user_touch(*block, order(numbers.order), lines.max(1), Access::Write);
        }
        (sequence.has, sequence.age) = (sequence.has + 1, sequence.age + 1);
        lab.load.done += 1;
        if sequence.has > sequence.ends {
            self.frees.append(&mut sequence.blocks);
            sequence.ends = 0;
        }
        self.next = (at + 1) % self.sequences.len();
    }
}

impl Program for KvCache {
    fn step(&mut self, lab: &mut Lab<'_>, cpu: u32) -> Turn {
        lab.allocator.platform().set_idle(cpu, false);
        self.cpus[cpu as usize].step(lab, &self.numbers);
        Turn::More
    }

    /// Each sequence is somewhere between its prompt and its end, as far as there is memory.
    fn scatter(&mut self, lab: &mut Lab<'_>, cpus: u32) {
        let nodes = u64::from(lab.machine.nodes());
        let memory = nodes * lab.machine.memory_mib * MIB_PAGES;
        let most = (memory / BEGUN_PART) >> self.numbers.order;
        let mut begun = 0;
        lab.allocator.platform().charge(false);
        for cpu in 0..cpus {
            lab.allocator.platform().turn(cpu, 0);
            let server = &mut self.cpus[cpu as usize];
            for at in 0..server.sequences.len() {
                let mut sequence = self.numbers.draw(lab);
                sequence.has += lab.random_below(sequence.ends - sequence.has);
                begun += self.numbers.blocks(sequence.has) as u64;
                if begun > most {
                    break;
                }
                server.sequences[at] = sequence;
                let tokens = server.sequences[at].has.div_ceil(self.numbers.tokens);
                for _ in 0..tokens {
                    server.grow(lab, &self.numbers, at);
                }
            }
        }
        lab.allocator.platform().charge(true);
    }

    fn finish(&mut self, lab: &mut Lab<'_>) {
        let order = order(self.numbers.order);
        for server in &mut self.cpus {
            let held = server.sequences.iter_mut().flat_map(|s| std::mem::take(&mut s.blocks));
            let all: Vec<Pfn> = held.chain(std::mem::take(&mut server.frees)).collect();
            all.into_iter().for_each(|block| lab.free(block, order));
        }
    }
}
