//! Pages by node: from the near one by default, from a named one on request, and the counters that
//! say which. Two made-up nodes show it on any machine.
//!
//! ```text
//! cargo run --release -p zonal --example numa
//! ```

use zonal::{CpuMap, NodeId, Order, Pool, Request};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Without this line the pool has the machine's own nodes.
    let pool = Pool::builder().size(64 << 20).fake_nodes(2, CpuMap::RoundRobin).build()?;

    let near = pool.alloc(Order::ZERO)?; // from the node of the running CPU
    let there = pool.alloc_with(Request::new(Order::ZERO).on(NodeId(1)))?;
    println!(
        "near: {:?}, asked for: {:?}",
        pool.node_of(near.as_ptr()),
        pool.node_of(there.as_ptr())
    );
    assert_eq!(pool.node_of(there.as_ptr()), Some(NodeId(1)));

    for node in pool.view().nodes() {
        let events = node.numa_events();
        println!(
            "{:?}: {} hits, {} misses, {} for CPUs of other nodes",
            node.id(),
            events.hit,
            events.miss,
            events.other
        );
    }
    print!("{}", pool.state().numastat(NodeId(1))); // the same, as the kernel prints it
    Ok(())
}

#[test]
fn runs() {
    main().unwrap();
}
