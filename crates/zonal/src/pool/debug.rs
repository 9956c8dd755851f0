//! What `{:?}` says of a pool and of a builder: a line that does not grow with the pool. Figures
//! are in [`Pool::view`], where bytes are in [`Pool::held`].

use std::fmt;

use super::{Builder, Pool};
use crate::platform::Mode;

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Why restartable sequences are not used can be long: `Pool::mode` says it.
        let mode = match self.mode() {
            Mode::Rseq => "rseq",
            Mode::Lock(_) => "lock",
        };
        f.debug_struct("Pool")
            .field("base", &self.base())
            .field("bytes", &self.bytes())
            .field("nodes", &self.nodes())
            .field("zones", &self.view().zones().len())
            .field("cpus", &self.view().cpus())
            .field("policy", &self.policy().name)
            .field("mode", &format_args!("{mode}"))
            .field("notices", &self.notices().len())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("bytes", &self.bytes)
            .field("zones", &self.zones.len())
            .field("fake_nodes", &self.fake.as_ref().map(|(nodes, _)| nodes))
            .field("backing", &self.backing)
            .field("binding", &self.binding)
            .field("prefault", &self.prefault)
            .field("deferred", &self.deferred)
            .field("poison", &self.poison)
            .field("rseq", &self.rseq)
            .field("policy", &self.policy.name)
            .field("refresh", &self.refresh)
            .field("trim_rate", &self.trim_rate)
            .field("background", &self.background)
            .field("budget", &self.budget)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use crate::{CpuMap, Mode, NodeBinding, Pool, ZoneKind, ZoneSize};

    /// Bytes of a line that fits a log.
    const SHORT: usize = 500;

    #[test]
    fn a_pool_of_any_size_and_a_builder_print_as_a_short_line() {
        for (bytes, nodes) in [(4 << 20, 1), (64 << 20, 8), (1 << 30, 2)] {
            let builder = Pool::builder()
                .size(bytes)
                .fake_nodes(nodes, CpuMap::default())
                .binding(NodeBinding::Advisory)
                .budget(bytes / 2)
                .rseq(false);
            let text = format!("{builder:?}");
            assert!(text.len() < SHORT && text.contains(&bytes.to_string()), "{text}");
            let pool = builder.build().unwrap();
            assert!(matches!(pool.mode(), Mode::Lock(_)));
            for text in [format!("{pool:?}"), format!("{:?}", pool.view())] {
                assert!(text.len() < SHORT, "{} bytes: {text}", text.len());
            }
            assert!(format!("{pool:?}").contains(&format!("bytes: {}", pool.bytes())), "{pool:?}");
            let page = pool.alloc(crate::Order::ZERO).unwrap();
            assert!(format!("{page:?}").len() < SHORT, "{page:?}");
        }
    }

    #[test]
    fn a_builder_with_many_zones_prints_as_a_short_line() {
        let zone = |node| ZoneSize { node, kind: ZoneKind::Normal, bytes: 4 << 20 };
        let zones: Vec<ZoneSize> = (0..1000).map(zone).collect();
        let map = CpuMap::Explicit((0..1000).collect());
        let text = format!("{:?}", Pool::builder().zones(&zones).fake_nodes(1000, map));
        assert!(text.len() < SHORT && text.contains("zones: 1000"), "{text}");
    }
}
