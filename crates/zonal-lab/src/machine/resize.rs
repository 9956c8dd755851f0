//! The same kind of machine with another number of CPUs.
//!
//! The rule, in this order, so that a size looks like a real machine of its kind, and so that a
//! little more or less of it is a little more or less of the same:
//! 1. Threads per core and sockets stay where there are CPUs enough for a whole core on each
//!    socket; otherwise fewer sockets, and only then fewer threads per core.
//! 2. The cores of a socket follow, rounded up; the CPUs that are then too many, the last ones, are
//!    offline.
//! 3. A last-level cache for the whole socket stays one, and grows or shrinks with the cores, each
//!    core bringing its slice, but holds no less than an L2. A smaller one keeps its cores and its
//!    size where the socket divides by them, and is shared by fewer cores otherwise.
//! 4. Nodes per socket stay where the cores divide by them, and are fewer otherwise. A node of
//!    several sockets stays one. Memory per node stays.
//! 5. Costs stay. A larger machine of the same kind is slower at long distances than that; the
//!    figures for real ones are not known, so none is made up.

use super::check::{CPUS_MAX, check};
use super::load::split_size;
use super::{Machine, MachineError};

impl Machine {
    /// This machine with another number of CPUs.
    ///
    /// # Errors
    /// [`MachineError::Field`] if no machine has that many.
    pub fn resized(&self, cpus: u32) -> Result<Machine, MachineError> {
        in_range(cpus)?;
        let threads = self.threads_per_core.min(cpus);
        let cores = cpus.div_ceil(threads);
        let sockets = self.sockets.min(cores);
        let mut machine = self.shaped(sockets, threads, cores.div_ceil(sockets));
        machine.offline_cpus = machine.cpus() - cpus;
        machine.name = format!("{}@{cpus}", self.base_name());
        check(&machine)?;
        Ok(machine)
    }

    /// This machine with a number of CPUs on a number of sockets of one node each.
    ///
    /// # Errors
    /// [`MachineError::Field`] if the CPUs cannot be shared out evenly.
    pub fn resized_nodes(&self, cpus: u32, nodes: u32) -> Result<Machine, MachineError> {
        in_range(cpus)?;
        if nodes == 0 || !cpus.is_multiple_of(nodes) {
            let what = format!("{cpus} CPUs cannot be shared out evenly over {nodes} nodes");
            return Err(MachineError::field("size", what));
        }
        let each = cpus / nodes;
        let fits = |threads: &u32| each.is_multiple_of(*threads);
        let threads = (1..=self.threads_per_core).rev().find(fits).unwrap_or(1);
        let mut machine = self.shaped(nodes, threads, each / threads);
        machine.nodes = nodes;
        machine.interleaved_nodes = 1;
        machine.distances = None;
        machine.name = format!("{}@{cpus}/{nodes}", self.base_name());
        check(&machine)?;
        Ok(machine)
    }

    fn shaped(&self, sockets: u32, threads: u32, cores: u32) -> Machine {
        let mut machine = self.clone();
        let divisor = |most: u32| (1..=most.min(cores)).rev().find(|n| cores.is_multiple_of(*n));
        (machine.sockets, machine.threads_per_core) = (sockets, threads);
        machine.cores_per_socket = cores;
        machine.offline_cpus = 0;
        if self.cache.llc_cores == self.cores_per_socket {
            let slices =
                (self.cache.llc_kib * u64::from(cores)).div_ceil(self.cache.llc_cores.into());
            machine.cache.llc_cores = cores;
            machine.cache.llc_kib = slices.max(self.cache.l2_kib);
        } else {
            machine.cache.llc_cores = divisor(self.cache.llc_cores).unwrap_or(1);
        }
        machine.nodes = match self.nodes >= self.sockets {
            true => sockets * divisor(self.nodes / self.sockets).unwrap_or(1),
            false => sockets.div_ceil(self.sockets / self.nodes),
        };
        if machine.nodes != self.nodes {
            machine.interleaved_nodes = 1;
            machine.distances = None;
        }
        machine
    }

    /// Its name without a size.
    fn base_name(&self) -> &str {
        split_size(&self.name).0
    }
}

fn in_range(cpus: u32) -> Result<(), MachineError> {
    match (1..=CPUS_MAX).contains(&cpus) {
        true => Ok(()),
        false => {
            let what = format!("{cpus} CPUs, but a machine has 1 to {CPUS_MAX}");
            Err(MachineError::field("size", what))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resizing_keeps_the_shape() {
        let machine = Machine::named("broadwell-2017-88").unwrap();
        let shape = |cpus| {
            let m = machine.resized(cpus).unwrap();
            assert_eq!(m.cpus(), cpus);
            (m.sockets, m.threads_per_core, m.cores_per_socket, m.nodes, m.cache.llc_cores)
        };
        assert_eq!(shape(2), (1, 2, 1, 1, 1));
        assert_eq!(shape(3), (2, 2, 1, 2, 1), "one of four is offline");
        assert_eq!(shape(8), (2, 2, 2, 2, 2));
        assert_eq!(shape(22), (2, 2, 6, 2, 6), "two of 24 are offline");
        assert_eq!(shape(44), (2, 2, 11, 2, 11));
        assert_eq!(shape(88), (2, 2, 22, 2, 22));
        assert_eq!(shape(176), (2, 2, 44, 2, 44));
        assert_eq!(shape(512), (2, 2, 128, 2, 128));
        assert_eq!(shape(7), (2, 2, 2, 2, 2));
        assert_eq!(shape(1), (1, 1, 1, 1, 1));
        assert!(machine.resized(0).is_err() && machine.resized(5000).is_err());
    }

    #[test]
    fn every_preset_has_every_size_and_a_cpu_keeps_its_share_of_cache() {
        for machine in Machine::presets() {
            for cpus in [1, 2, 8, 22, 44, 176, 512, 1024, 4096] {
                let sized = machine.resized(cpus).unwrap();
                assert_eq!(sized.cpus(), cpus, "{}", sized.name);
                let resized_again = sized.resized(machine.cpus()).unwrap();
                assert_eq!(resized_again.cpus(), machine.cpus());
                if sized.threads_per_core == machine.threads_per_core {
                    assert!(sized.cache_slice_bytes() >= machine.cache_slice_bytes());
                }
            }
            let same = machine.resized(machine.cpus()).unwrap();
            // With offline CPUs, cores of the same number are shared out otherwise.
            if machine.offline_cpus == 0 {
                assert_eq!((same.cache, same.nodes), (machine.cache, machine.nodes));
            }
        }
    }

    #[test]
    fn a_small_last_level_cache_stays_small() {
        let machine = Machine::named("rome-2019-256").unwrap();
        assert_eq!(machine.resized(128).unwrap().cache, machine.cache);
        let odd = machine.resized(24).unwrap();
        assert_eq!((odd.cores_per_socket, odd.cache.llc_cores), (6, 3));
        assert_eq!(odd.cache.llc_kib, machine.cache.llc_kib);
    }

    #[test]
    fn large_machines_with_many_nodes_are_sockets_of_one_node() {
        let machine = Machine::named("broadwell-2017-88").unwrap();
        let large = machine.resized_nodes(1024, 16).unwrap();
        assert_eq!((large.cpus(), large.nodes(), large.cores_per_socket), (1024, 16, 32));
        assert_eq!((large.distance(0, 0), large.distance(3, 9)), (10, 20));
        assert!(machine.resized_nodes(100, 16).is_err());
    }
}
