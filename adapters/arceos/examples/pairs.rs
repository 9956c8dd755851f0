//! Pages taken and given back, for a counter of instructions: `pairs ours|theirs PAGES HELD TIMES`.
//! The difference of two runs, by the difference of their times, is what a pair takes.

use std::hint::black_box;
use std::mem::MaybeUninit;

use ax_allocator::{BitmapPageAllocator, PageAllocator};
use zonal_arceos::{PAGE_SIZE, Pages, Span};

const START: usize = 1 << 30;
const SIZE: usize = 128 << 20;

fn pairs(on: &mut dyn FnMut(Option<usize>, usize) -> usize, count: usize, held: usize, times: u64) {
    let mut all = Vec::with_capacity(held);
    for _ in 0..times {
        (0..held).for_each(|_| all.push(on(None, black_box(count))));
        all.drain(..).for_each(|at| {
            on(Some(at), black_box(count));
        });
    }
}

fn run(pages: &mut impl PageAllocator, count: usize, held: usize, times: u64) {
    pages.init(START, SIZE);
    let mut call = |at: Option<usize>, count| match at {
        None => pages.alloc_pages(count, PAGE_SIZE).expect("pages"),
        Some(at) => {
            pages.dealloc_pages(at, count);
            0
        }
    };
    pairs(&mut call, count, held, times);
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let number = |at: usize| args.get(at).and_then(|text| text.parse::<usize>().ok());
    let (Some(which), Some(count), Some(held), Some(times)) =
        (args.get(1), number(2), number(3), number(4))
    else {
        eprintln!("expected: pairs ours|theirs PAGES HELD TIMES");
        std::process::exit(2);
    };
    let times = times as u64;
    match which.as_str() {
        "ours" => {
            let span = Span::new(START, START + SIZE);
            let mut records = vec![MaybeUninit::uninit(); span.record_bytes().expect("a span")];
            run(&mut Pages::new(&span, &mut records).expect("pages"), count, held, times);
        }
        "theirs" => run(&mut BitmapPageAllocator::<PAGE_SIZE>::new(), count, held, times),
        other => {
            eprintln!("{other}: expected ours or theirs");
            std::process::exit(2);
        }
    }
}
