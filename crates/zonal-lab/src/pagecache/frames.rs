//! The model's record of each page frame, and lists of frames.

/// No frame.
const NONE: u32 = u32::MAX;

/// A frame of a cached page.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    prev: u32,
    next: u32,
    /// Its file.
    pub file: u32,
    /// Its place in the file.
    pub index: u32,
    flags: u8,
    /// Its zone.
    pub zone: u8,
}

/// What may be true of a cached page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flag {
    /// On the active list.
    Active = 1,
    /// To be written.
    Dirty = 2,
    /// Being written.
    Writeback = 4,
    /// Being read.
    Reading = 8,
    /// Mapped by a process.
    Mapped = 16,
    /// Used by a read or a write (`PG_referenced`).
    Referenced = 32,
    /// Used through its mapping since the last look.
    Young = 64,
    /// Reclaimed as soon as it is written (`PG_reclaim`).
    Rotate = 128,
}

impl Frame {
    /// Whether this is true.
    pub fn has(&self, flag: Flag) -> bool {
        self.flags & flag as u8 != 0
    }
    /// From now on it is. Returns whether it was.
    pub fn set(&mut self, flag: Flag) -> bool {
        let was = self.has(flag);
        self.flags |= flag as u8;
        was
    }
    /// From now on it is not. Returns whether it was.
    pub fn clear(&mut self, flag: Flag) -> bool {
        let was = self.has(flag);
        self.flags &= !(flag as u8);
        was
    }
}

/// All frames, by number.
#[derive(Debug)]
pub struct Frames(Vec<Frame>);

impl Frames {
    /// Frames of these zones, which end before these numbers.
    pub fn new(zone_ends: &[u64]) -> Frames {
        let mut frames = Vec::new();
        for (zone, end) in zone_ends.iter().enumerate() {
            let zone = zone as u8;
            let none = Frame { prev: NONE, next: NONE, file: NONE, index: 0, flags: 0, zone };
            frames.resize(*end as usize, none);
        }
        Frames(frames)
    }

    /// One of them.
    pub fn get(&self, at: u32) -> &Frame {
        &self.0[at as usize]
    }
    /// One of them, to change it.
    pub fn of(&mut self, at: u32) -> &mut Frame {
        &mut self.0[at as usize]
    }

    /// Sets the page of a file that it holds, and clears its flags.
    pub fn own(&mut self, at: u32, file: u32, index: u32) -> &mut Frame {
        let frame = self.of(at);
        (frame.file, frame.index, frame.flags) = (file, index, 0);
        frame
    }
}

/// A list of frames, newest first.
#[derive(Debug)]
pub struct List {
    head: u32,
    tail: u32,
    /// Its length.
    pub len: u64,
}

impl Default for List {
    fn default() -> List {
        List { head: NONE, tail: NONE, len: 0 }
    }
}

impl List {
    /// The oldest one.
    pub fn oldest(&self) -> Option<u32> {
        (self.tail != NONE).then_some(self.tail)
    }

    /// Adds one as the newest.
    pub fn push(&mut self, frames: &mut Frames, at: u32) {
        let frame = frames.of(at);
        (frame.prev, frame.next) = (NONE, self.head);
        match self.head {
            NONE => self.tail = at,
            head => frames.of(head).prev = at,
        }
        self.head = at;
        self.len += 1;
    }

    /// Adds one as the oldest.
    pub fn push_oldest(&mut self, frames: &mut Frames, at: u32) {
        let frame = frames.of(at);
        (frame.prev, frame.next) = (self.tail, NONE);
        match self.tail {
            NONE => self.head = at,
            tail => frames.of(tail).next = at,
        }
        self.tail = at;
        self.len += 1;
    }

    /// Takes one off, which is on it.
    pub fn unlink(&mut self, frames: &mut Frames, at: u32) {
        let Frame { prev, next, .. } = *frames.get(at);
        match prev {
            NONE => self.head = next,
            prev => frames.of(prev).next = next,
        }
        match next {
            NONE => self.tail = prev,
            next => frames.of(next).prev = prev,
        }
        self.len -= 1;
    }
}
