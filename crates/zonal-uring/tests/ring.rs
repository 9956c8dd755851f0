//! Rings: what is read and written is right, what an operation has is nobody else's, and all comes
//! back whatever happens.

mod support;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use support::{MIB, is_whole, pool, ring, rings, shared};
use zonal::{Order, PAGE_SIZE, Pool};
use zonal_uring::{Buffer, Completion, Io, Options, Ring, RingError};

/// The next completion, waited for.
fn done(ring: &mut Ring) -> Completion {
    loop {
        if let Some(done) = ring.next() {
            return done;
        }
        ring.wait_for(1, Duration::from_secs(60)).unwrap();
        assert!(ring.in_flight() > 0, "nothing is to come");
    }
}

fn page(pool: &Pool) -> Buffer {
    pool.alloc_zeroed(Order::ZERO).unwrap().into_owned().into()
}

#[test]
fn what_is_written_from_blocks_and_ranges_is_read_back() {
    for (pool, mut ring) in rings() {
        let file = tempfile::tempfile().unwrap();
        let fd = shared(file.try_clone().unwrap());
        let mut bytes = 0;
        for (number, pages) in [1usize, 2, 3, 8, 100].into_iter().enumerate() {
            let mut buffer: Buffer = match pages.is_power_of_two() {
                true => pool
                    .alloc(Order::for_bytes(pages * PAGE_SIZE).unwrap())
                    .unwrap()
                    .into_owned()
                    .into(),
                false => pool.ranges().alloc(pages).unwrap().into_owned().into(),
            };
            for (at, byte) in buffer.iter_mut().enumerate() {
                *byte = (at / 7 + number) as u8;
            }
            let part = 5..buffer.len() - 11;
            let io = Io::at(bytes).part(part.clone()).token(number as u64);
            ring.write(&fd, buffer, io).unwrap();
            let written = done(&mut ring);
            assert_eq!((written.token, written.more), (number as u64, false));
            assert_eq!(written.result.unwrap() as usize, part.len());
            let mut buffer = written.buffer.unwrap();
            let copy = buffer[part.clone()].to_vec();
            let mut on_disk = vec![0; part.len()];
            file.read_exact_at(&mut on_disk, bytes).unwrap();
            assert!(on_disk == copy, "{pages} pages");
            buffer.fill(0);
            ring.read(&fd, buffer, Io::at(bytes).part(part.clone())).unwrap();
            let read = done(&mut ring);
            assert_eq!(read.result.unwrap() as usize, part.len());
            assert!(read.buffer.unwrap()[part.clone()] == copy, "{pages} pages");
            bytes += part.len() as u64;
        }
        // Behind the end there is nothing.
        ring.read(&fd, page(&pool), Io::at(bytes)).unwrap();
        assert_eq!(done(&mut ring).result.unwrap(), 0);
        drop(ring);
        assert!(is_whole(&pool));
    }
}

#[test]
fn many_operations_are_each_completed_once_with_their_own_buffer() {
    for fixed in [true, false] {
        let pool = pool();
        // The queue is far shorter, so it is submitted again and again.
        let Some(mut ring) = ring(&pool, &Options::new().entries(4).fixed(fixed)) else { return };
        let file = tempfile::tempfile().unwrap();
        for number in 0..200u64 {
            file.write_all_at(&[number as u8; PAGE_SIZE], number * PAGE_SIZE as u64).unwrap();
        }
        let fd = shared(file);
        let mut operations = Vec::new();
        for number in 0..200u64 {
            let io = Io::at(number * PAGE_SIZE as u64).token(number);
            operations.push(ring.read(&fd, page(&pool), io).unwrap());
        }
        let mut seen = [false; 200];
        for _ in 0..200 {
            let done = done(&mut ring);
            assert_eq!(done.operation, operations[done.token as usize]);
            assert!(!std::mem::replace(&mut seen[done.token as usize], true));
            assert!(done.buffer.unwrap().iter().all(|byte| *byte == done.token as u8));
        }
        assert!(ring.next().is_none());
        assert_eq!(ring.in_flight(), 0);
        assert!(is_whole(&pool));
    }
}

#[test]
fn what_cannot_be_is_refused_and_the_buffer_comes_back() {
    let (own, other) = (pool(), pool());
    let Some(mut fixed) = ring(&own, &Options::new()) else { return };
    let mut plain = ring(&own, &Options::new().fixed(false)).unwrap();
    let file = shared(tempfile::tempfile().unwrap());
    let refused = fixed.read(&file, page(&other), Io::at(0)).unwrap_err();
    assert!(matches!(refused.error, RingError::Foreign), "{refused}");
    assert!(refused.buffer.is_of(&other));
    // Without fixed buffers any page will do.
    plain.write(&file, refused.buffer, Io::at(0)).unwrap();
    assert_eq!(done(&mut plain).result.unwrap() as usize, PAGE_SIZE);
    #[expect(clippy::reversed_empty_ranges, reason = "that is what is refused")]
    for part in [0..0, 5..4, 0..PAGE_SIZE + 1, PAGE_SIZE..PAGE_SIZE + 1, 0..usize::MAX] {
        for ring in [&mut fixed, &mut plain] {
            let refused = ring.write(&file, page(&own), Io::at(0).part(part.clone())).unwrap_err();
            assert!(matches!(refused.error, RingError::Part { len: 4096, .. }), "{refused}");
        }
    }
    let socket = shared(UnixStream::pair().unwrap().0);
    for error in [fixed.receive(&socket, 3, 0).unwrap_err(), fixed.refill(3).unwrap_err()] {
        assert!(matches!(error, RingError::Group { group: 3, .. }), "{error}");
    }
    for count in [0, 3, 6, u16::MAX] {
        let error = fixed.provide(3, count, Order::ZERO).unwrap_err();
        assert!(matches!(error, RingError::Group { .. }), "{error}");
    }
    assert!(fixed.give_back(9, page(&own)).is_err());
    assert!(matches!(Ring::new(&own, &Options::new().entries(0)), Err(RingError::Entries)));
    // A kernel's own error is the completion's.
    let (reader, writer) = std::io::pipe().unwrap();
    fixed.write(&shared(OwnedFd::from(reader)), page(&own), Io::stream()).unwrap();
    let wrong = done(&mut fixed);
    assert_eq!(wrong.result.unwrap_err().raw_os_error(), Some(libc::EBADF));
    drop(wrong.buffer.unwrap());
    drop((fixed, plain, writer));
    assert!(is_whole(&own) && is_whole(&other));
}

#[test]
fn a_ring_that_is_dropped_takes_what_is_in_flight_back_first() {
    for is_submitted in [true, false] {
        for (pool, mut ring) in rings() {
            let (socket, mut far) = UnixStream::pair().unwrap();
            let socket = shared(socket);
            for _ in 0..20 {
                ring.read(&socket, page(&pool), Io::stream()).unwrap();
            }
            if is_submitted {
                ring.submit().unwrap();
            }
            let all = pool.bytes() / PAGE_SIZE;
            assert_eq!((ring.in_flight(), pool.free_page_count() as usize), (20, all - 20));
            drop(ring);
            assert!(is_whole(&pool));
            // Whoever has the pages now keeps what is theirs.
            let pages: Vec<Buffer> = (0..all / 2).map(|_| page(&pool)).collect();
            let _ = far.write_all(&[0xff; 20 * PAGE_SIZE]);
            assert!(pages.iter().all(|page| page.iter().all(|byte| *byte == 0)));
        }
    }
}

#[test]
fn an_operation_can_be_cancelled() {
    for (pool, mut ring) in rings() {
        let (socket, _far) = UnixStream::pair().unwrap();
        let operation = ring.read(&shared(socket), page(&pool), Io::stream()).unwrap();
        ring.submit().unwrap();
        ring.cancel(operation).unwrap();
        let cancelled = done(&mut ring);
        assert_eq!(cancelled.operation, operation);
        assert_eq!(cancelled.result.unwrap_err().raw_os_error(), Some(libc::ECANCELED));
        drop(cancelled.buffer);
        // One that is over, or never was.
        ring.cancel(operation).unwrap();
        ring.submit().unwrap();
        assert!(ring.next().is_none());
        assert!(is_whole(&pool));
    }
}

/// The descriptor's number may be another file's by the time that the kernel looks.
#[test]
fn an_operation_keeps_its_file_open() {
    for (pool, mut ring) in rings() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(b"right", 0).unwrap();
        let fd = shared(file);
        let number = fd.as_raw_fd();
        ring.read(&fd, page(&pool), Io::at(0)).unwrap();
        drop(fd);
        let other = tempfile::tempfile().unwrap();
        other.write_all_at(b"wrong", 0).unwrap();
        assert_ne!(other.as_raw_fd(), number, "it is in use");
        assert_eq!(&done(&mut ring).buffer.unwrap()[..5], b"right");
    }
}

/// Registered pages that are given back to the system would be others when they are faulted in.
#[test]
fn a_trim_takes_no_page_that_is_registered() {
    let pool = Pool::builder().size(16 * MIB).prefault(true).build().unwrap();
    let smaller = |pool: &Pool| {
        pool.drain_all();
        pool.trim(usize::MAX).unwrap()
    };
    let Some(mut ring) = ring(&pool, &Options::new()) else { return };
    assert_eq!(smaller(&pool), 0);
    pool.set_budget(8 * MIB).unwrap();
    pool.set_budget(16 * MIB).unwrap();
    let file = tempfile::tempfile().unwrap();
    file.write_all_at(&vec![7; 4 * MIB], 0).unwrap();
    let fd = shared(file);
    let mut blocks = Vec::new();
    while let Ok(block) = pool.alloc(Order::new(9).unwrap()) {
        blocks.push(Buffer::from(block.into_owned()));
    }
    assert!(blocks.len() > 3);
    for block in blocks {
        ring.read(&fd, block, Io::at(0)).unwrap();
        let done = done(&mut ring);
        let bytes = done.result.unwrap() as usize;
        assert_eq!(bytes, 2 * MIB);
        assert!(done.buffer.unwrap().iter().all(|byte| *byte == 7), "read where we look");
    }
    drop(ring);
    assert!(smaller(&pool) > 0);
}

#[test]
fn a_pool_lives_as_long_as_its_ring_and_its_blocks_know_their_place() {
    let pool = pool();
    let Some(ring) = ring(&pool, &Options::new()) else { return };
    let base = pool.base();
    let place = ring.place(base.wrapping_add(3 * PAGE_SIZE)).unwrap();
    assert_eq!((place.index, place.offset), (0, 3 * PAGE_SIZE));
    assert_eq!(place.left, pool.bytes() - 3 * PAGE_SIZE);
    assert_eq!(ring.place(base.wrapping_sub(1)), None);
    assert_eq!(ring.place(base.wrapping_add(pool.bytes())), None);
    let block = page(&pool);
    drop(pool);
    assert!(ring.place(block.as_ptr()).is_some());
    let (mut ring, file) = (ring, shared(tempfile::tempfile().unwrap()));
    ring.write(&file, block, Io::at(0)).unwrap();
    assert_eq!(done(&mut ring).result.unwrap() as usize, PAGE_SIZE);
    // A ring goes to another thread, with what is in flight.
    let block = ring.pool().alloc(Order::ZERO).unwrap().into_owned();
    ring.write(&file, block, Io::at(0)).unwrap();
    let last = std::thread::spawn(move || done(&mut ring)).join().unwrap();
    assert!(last.buffer.unwrap().iter().all(|byte| *byte == 0));
}

#[test]
fn provided_pages_are_taken_when_bytes_arrive_and_come_back() {
    for (pool, mut ring) in rings() {
        ring.provide(5, 4, Order::new(1).unwrap()).unwrap();
        let taken = ring.provide(5, 4, Order::ZERO).unwrap_err();
        assert!(matches!(taken, RingError::Group { group: 5, .. }), "{taken}");
        assert_eq!(ring.provided(5).unwrap(), 4);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        ring.accept(&shared(listener), 1).unwrap();
        let accepted = done(&mut ring);
        assert_eq!((accepted.token, accepted.more), (1, true));
        let socket: Arc<OwnedFd> = Arc::new(accepted.accepted.unwrap());
        let receive = ring.receive(&socket, 5, 2).unwrap();
        // Each page in turn, given back at once: far more than there are entries.
        for number in 0..50u8 {
            client.write_all(&[number; 1000]).unwrap();
            let mut left = 1000;
            while left > 0 {
                let got = done(&mut ring);
                let (bytes, page) = (got.result.unwrap() as usize, got.buffer.unwrap());
                assert_eq!((got.token, got.more, got.operation), (2, true, receive));
                assert!(page.is_of(&pool) && page.len() == 2 * PAGE_SIZE);
                assert!(page[..bytes].iter().all(|byte| *byte == number));
                left -= bytes;
                ring.give_back(5, page).unwrap();
            }
        }
        let refused = ring.give_back(5, page(&pool)).unwrap_err();
        assert!(matches!(refused.error, RingError::Group { .. }), "{refused}");
        drop(refused);
        // Kept pages: the group runs empty, which is told, and can be filled again.
        client.write_all(&[1; 5 * 2 * PAGE_SIZE]).unwrap();
        let mut kept = Vec::new();
        let last = loop {
            let got = done(&mut ring);
            match got.buffer {
                Some(page) => kept.push(page),
                None => break got,
            }
        };
        assert_eq!(last.result.unwrap_err().raw_os_error(), Some(libc::ENOBUFS));
        assert_eq!((kept.len(), last.more, ring.provided(5).unwrap()), (4, false, 0));
        assert_eq!(ring.refill(5).unwrap(), 4);
        assert_eq!(ring.refill(5).unwrap(), 0);
        ring.receive(&socket, 5, 3).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        loop {
            let got = done(&mut ring);
            assert_eq!(got.token, 3);
            if got.result.unwrap() == 0 {
                assert!(!got.more);
                break;
            }
            drop(got.buffer);
        }
        // Dropped with pages provided, and an accept in flight.
        drop(ring);
        drop(kept);
        assert!(is_whole(&pool));
    }
}

#[test]
fn a_connection_that_nobody_took_is_closed_with_the_ring() {
    let pool = pool();
    let Some(mut ring) = ring(&pool, &Options::new()) else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    ring.accept(&shared(listener), 1).unwrap();
    ring.submit().unwrap();
    let mut client = TcpStream::connect(address).unwrap();
    ring.wait_for(1, Duration::from_secs(60)).unwrap();
    drop(ring);
    client.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    // The end, or a reset: not a connection that stays open for ever.
    let end = client.read(&mut [0; 8]);
    assert!(
        !matches!(&end, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock),
        "{end:?}"
    );
    assert!(end.unwrap_or(0) == 0);
}

/// A child has the parent's queues, so it touches none of them.
#[test]
fn a_forked_child_is_refused_and_leaves_the_parent_alone() {
    for (pool, mut ring) in rings() {
        ring.provide(1, 2, Order::ZERO).unwrap();
        let (socket, mut far) = UnixStream::pair().unwrap();
        let socket = shared(socket);
        ring.read(&socket, page(&pool), Io::stream()).unwrap();
        let spare = page(&pool);
        // SAFETY: (1) the child calls the ring, which refuses, and `_exit`.
        let child = unsafe { libc::fork() };
        assert!(child >= 0);
        if child == 0 {
            let forked = [
                matches!(ring.submit(), Err(RingError::Forked)),
                matches!(ring.provide(2, 2, Order::ZERO), Err(RingError::Forked)),
                matches!(ring.receive(&socket, 1, 0), Err(RingError::Forked)),
                ring.read(&socket, spare, Io::stream())
                    .is_err_and(|refused| matches!(refused.error, RingError::Forked)),
                ring.next().is_none(),
            ];
            drop(ring);
            // SAFETY: (1) ends the process.
            unsafe { libc::_exit(i32::from(forked != [true; 5])) };
        }
        let mut status = 0;
        // SAFETY: (1) the status is a live integer.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
        far.write_all(b"hello").unwrap();
        let read = done(&mut ring);
        assert_eq!((read.result.unwrap(), &read.buffer.unwrap()[..5]), (5, &b"hello"[..]));
    }
}

/// Above 1 GiB there is a second fixed buffer; what crosses the border is read in two steps.
#[test]
fn a_range_that_crosses_a_fixed_buffer_is_read_up_to_its_end() {
    const GIB: usize = 1 << 30;
    let free = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("MemAvailable:"))?;
        line.split_whitespace().nth(1)?.parse::<usize>().ok()
    });
    if free.is_none_or(|kib| kib < 4 * MIB) {
        eprintln!("SKIPPED: less than 4 GiB of memory are available, and this takes 1 GiB of them");
        return;
    }
    let pool = Pool::builder().size(GIB + 64 * MIB).refresh_every(None).build().unwrap();
    let Some(mut ring) = ring(&pool, &Options::new()) else { return };
    let border = pool.base().wrapping_add(GIB);
    let start = border.wrapping_sub(PAGE_SIZE);
    assert_eq!(ring.place(start).unwrap().left, PAGE_SIZE);
    assert_eq!(ring.place(border).unwrap().index, 1);
    let range = pool.ranges().alloc_at(start, 3, zonal::Gfp::KERNEL).unwrap().into_owned();
    let file = tempfile::tempfile().unwrap();
    file.write_all_at(&[9; 3 * PAGE_SIZE], 0).unwrap();
    let fd = shared(file);
    ring.read(&fd, range, Io::at(0)).unwrap();
    let first = done(&mut ring);
    assert_eq!(first.result.unwrap() as usize, PAGE_SIZE);
    let rest = Io::at(PAGE_SIZE as u64).part(PAGE_SIZE..3 * PAGE_SIZE);
    ring.read(&fd, first.buffer.unwrap(), rest).unwrap();
    let second = done(&mut ring);
    assert_eq!(second.result.unwrap() as usize, 2 * PAGE_SIZE);
    assert!(second.buffer.unwrap().iter().all(|byte| *byte == 9));
}
