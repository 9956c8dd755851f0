//! A reader that takes in no more than it can answer: requests wait for a buffer, and the buffers
//! are the limit.
//!
//! ```text
//! cargo run --release -p zonal --example back_pressure
//! ```
//!
//! In a task of any runtime `buffers.get().await` takes the place of `get_blocking`.

use std::sync::mpsc;

use zonal::Pool;
use zonal::buffers::{Buffer, BufferPool};

const REQUESTS: usize = 10_000;
const BUFFERS: usize = 32;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let pool = Pool::builder().size(64 << 20).build()?;
    let buffers = BufferPool::new(pool, 16 << 10, BUFFERS)?;
    // The channel has no bound of its own: the buffers bound what is in it.
    let (send, receive) = mpsc::channel::<Buffer>();
    let reading = buffers.clone();
    let reader = std::thread::spawn(move || {
        for request in 0..REQUESTS {
            let mut buffer = reading.get_blocking()?; // waits while all are in use
            buffer[..8].copy_from_slice(&request.to_le_bytes());
            if send.send(buffer).is_err() {
                break;
            }
        }
        Ok::<(), zonal::AllocError>(())
    });
    let mut answered = 0;
    for buffer in receive {
        assert!(buffers.in_use() <= BUFFERS);
        assert_eq!(buffer[..8], usize::to_le_bytes(answered));
        answered += 1;
    }
    reader.join().expect("the reader does not panic")?;
    println!("{answered} answered with {BUFFERS} buffers");
    assert_eq!((answered, buffers.in_use()), (REQUESTS, 0));
    Ok(())
}

#[test]
fn runs() {
    main().unwrap();
}
