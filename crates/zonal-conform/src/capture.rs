//! One kernel: its texts, read and checked.
//!
//! | text | a directory | a running kernel |
//! |--|--|--|
//! | `meta.json` | must have it | the release from `osrelease` |
//! | `recalc-zoneinfo.txt` | must have it: limits were computed from what it shows | none |
//! | `zoneinfo.txt` | must have it | must have it |
//! | `folded-zoneinfo.txt` | may have it | none |
//! | `sysctl.txt` | must have it | one file each |
//! | `pagetypeinfo.txt`, `iomem.txt` | must have them | where root may read them |
//! | `nodeN-distance.txt`, `nodeN-cpulist.txt` | must have them for each node | the same |
//! | `meminfo.txt`, `nodeN-meminfo.txt`, `cmdline.txt` | may have them | the same |
//! | `sys-node-*.txt`, `sys-cpu-*.txt` | may have them | the same |
//! | `buddyinfo.txt`, `vmstat.txt`, `numastat-nodeN.txt` and the like | only read, for damage | |
//!
//! Text that no kernel can have printed is bad input, not a mismatch.

use zonal_core::types::{NodeId, PageRules, ZoneKind};
use zonal_text::release::KernelRelease;
use zonal_text::{buddyinfo, cmdline, cpulist, distance, iomem, meminfo, pagetypeinfo, vmstat};

use crate::error::{Error, ensure};
use crate::files::Files;
use crate::meta::{self, Meta};
use crate::settings::Settings;
use crate::zones::{ZoneFile, check_cpus};

/// A kernel's texts, read and checked.
///
/// [`judge`](crate::judge) compares it with what the core computes.
#[derive(Debug)]
pub struct Capture {
    /// What reports call it.
    pub(crate) name: String,
    /// Whether it is running, so that its counters move while they are read.
    pub(crate) live: bool,
    /// Its release.
    pub(crate) release: KernelRelease,
    /// What its recorder noted.
    pub(crate) meta: Meta,
    /// Its sysctls.
    pub(crate) settings: Settings,
    /// Online nodes, ascending, with their online CPUs.
    pub(crate) nodes: Vec<Node>,
    /// Distances between the nodes, row by row.
    pub(crate) distances: Vec<u8>,
    /// CPUs online, and the file's name.
    pub(crate) cpus_online: Option<(String, Vec<u32>)>,
    /// Whether there are CPUs that are not online.
    pub(crate) hidden_cpus: bool,
    /// The `zoneinfo` that the other texts are compared with first.
    pub(crate) zoneinfo: Vec<ZoneFile>,
    /// Memory as the firmware described it, and the file's name.
    pub(crate) iomem: Option<(String, iomem::Document)>,
    /// Free blocks and pageblocks by type, and the file's name.
    pub(crate) pagetypeinfo: Option<(String, pagetypeinfo::Document)>,
    /// `meminfo` of the machine, and the file's name.
    pub(crate) meminfo: Option<(String, meminfo::Document)>,
    /// Lists of nodes by state: state, file, nodes.
    pub(crate) node_states: Vec<(&'static str, String, Vec<u32>)>,
    /// The kernel's command line.
    pub(crate) cmdline: cmdline::Document,
    /// Its pages and pageblocks.
    pub(crate) page: PageRules,
}

/// A node.
#[derive(Debug)]
pub(crate) struct Node {
    /// Its id.
    pub(crate) id: u32,
    /// Its online CPUs.
    pub(crate) cpus: Vec<u32>,
    /// What messages call its list of CPUs and its row of distances.
    pub(crate) files: [String; 2],
    /// Whether the kernel prints distances; one without NUMA does not.
    pub(crate) has_distances: bool,
    /// Its `meminfo`, and the file's name.
    pub(crate) meminfo: Option<(String, meminfo::Document)>,
}

/// `log2` of the bytes of pages that kernels can have.
const PAGE_SHIFTS: [u8; 3] = [12, 14, 16];
/// States that nodes are listed by.
const STATES: [&str; 4] = ["online", "has_memory", "has_normal_memory", "has_cpu"];

/// Reads texts by name and says where one is bad.
struct Reader<'a> {
    files: &'a dyn Files,
    live: bool,
}

impl Capture {
    /// Reads a capture from a directory's texts.
    ///
    /// # Errors
    /// Names the file, and the line where there is one.
    pub fn read(name: &str, files: &dyn Files) -> Result<Capture, Error> {
        let reader = Reader { files, live: false };
        let meta = Meta::parse(files.path(meta::FILE), &reader.must(meta::FILE)?)?;
        let name = meta.name.clone().unwrap_or_else(|| name.to_owned());
        reader.read(name, meta)
    }

    /// Reads the running kernel.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn live(files: &dyn Files) -> Result<Capture, Error> {
        let reader = Reader { files, live: true };
        let kernel_release = reader.must("osrelease")?.trim_end().to_owned();
        let uname = std::env::consts::ARCH.to_owned();
        let meta = Meta { kernel_release, uname, ..Meta::default() };
        reader.read("live".to_owned(), meta)
    }

    /// What reports call it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The kernel's release, as far as rules change with it.
    pub fn release(&self) -> KernelRelease {
        self.release
    }

    /// The zone kinds that the kernel has for each node, ascending.
    pub(crate) fn kinds(&self) -> Vec<ZoneKind> {
        let zones = &self.main().zones;
        zones.iter().filter(|zone| zone.node == zones[0].node).map(|zone| zone.kind).collect()
    }

    /// The `zoneinfo` that limits are judged by.
    pub(crate) fn main(&self) -> &ZoneFile {
        &self.zoneinfo[0]
    }

    /// The position of a node among the nodes.
    pub(crate) fn node_index(&self, id: u32) -> NodeId {
        NodeId(self.nodes.iter().position(|node| node.id == id).unwrap_or(0) as u16)
    }

    /// Whether the kernel was started with one of these parameters.
    pub(crate) fn started_with(&self, names: &[&str]) -> bool {
        self.cmdline.parameters().any(|(name, _)| names.contains(&name))
    }
}

impl Reader<'_> {
    fn may(&self, name: &str) -> Result<Option<String>, Error> {
        match self.files.read(name) {
            // A text that only root may read is as good as none.
            Err(error) if self.live && error.kind() == std::io::ErrorKind::PermissionDenied => {
                Ok(None)
            }
            other => other.map_err(|source| Error::Read { file: self.files.path(name), source }),
        }
    }

    fn must(&self, name: &str) -> Result<String, Error> {
        self.may(name)?.ok_or_else(|| Error::Missing(self.files.path(name)))
    }

    /// Parses a text, with the file's name in the error.
    fn parse<T>(
        &self,
        name: &str,
        text: &str,
        parse: fn(&str) -> Result<T, zonal_text::Error>,
    ) -> Result<T, Error> {
        parse(text).map_err(|e| Error::at(&self.files.path(name), e.line(), e.kind()))
    }

    /// Parses a text that may be missing.
    fn optional<T>(
        &self,
        name: &str,
        parse: fn(&str) -> Result<T, zonal_text::Error>,
    ) -> Result<Option<(String, T)>, Error> {
        let Some(text) = self.may(name)? else { return Ok(None) };
        Ok(Some((self.files.path(name), self.parse(name, &text, parse)?)))
    }

    /// The same for a text that only a running kernel may keep to itself.
    fn required<T>(
        &self,
        name: &str,
        parse: fn(&str) -> Result<T, zonal_text::Error>,
    ) -> Result<Option<(String, T)>, Error> {
        if !self.live {
            self.must(name)?;
        }
        self.optional(name, parse)
    }

    fn read(&self, name: String, meta: Meta) -> Result<Capture, Error> {
        let text = &meta.kernel_release;
        let release = KernelRelease::parse(text).ok_or_else(|| {
            let place = meta.source.find("", "\"kernel_release\"");
            Error::Bad { place, what: format!("`{text}` is no kernel release") }
        })?;
        let x86 = meta.is_x86();
        let settings = Settings::read(self.files, self.live)?;
        settings.check_ranges()?;
        let zoneinfo = self.zoneinfo(x86)?;
        let ids = zoneinfo[0].nodes();
        let nodes = match self.is_without_nodes(&ids)? {
            true => vec![self.only_node()?],
            false => ids.into_iter().map(|id| self.node(id)).collect::<Result<Vec<_>, _>>()?,
        };
        let mut online: Vec<u32> = nodes.iter().flat_map(|node| node.cpus.clone()).collect();
        // With `numa=fake` a CPU is on several nodes.
        online.sort_unstable();
        online.dedup();
        for file in &zoneinfo {
            let main = &zoneinfo[0];
            ensure(file.nodes().iter().eq(nodes.iter().map(|node| &node.id)), || {
                let (here, there) = (file.nodes(), main.nodes());
                let text = format!("nodes {here:?}, but {} has {there:?}", main.file);
                Error::at(&file.file, 1, &text)
            })?;
            check_cpus(file, &online)?;
        }
        let ids = |document: cpulist::Document| document.ids;
        let mut node_states = Vec::new();
        for state in STATES {
            let list = self.optional(&format!("sys-node-{state}.txt"), cpulist::parse)?;
            node_states.extend(list.map(|(file, list)| (state, file, ids(list))));
        }
        let possible = self.optional("sys-cpu-possible.txt", cpulist::parse)?;
        let cpus_online = self.optional("sys-cpu-online.txt", cpulist::parse)?;
        if !self.live {
            self.check_others(&nodes)?;
        }
        let pagetypeinfo = self.required("pagetypeinfo.txt", pagetypeinfo::parse)?;
        if let Some((file, document)) = &pagetypeinfo {
            check_pagetypeinfo(file, document, &zoneinfo[0])?;
        }
        let meminfo = self.optional("meminfo.txt", meminfo::parse)?;
        let page = page(meminfo.as_ref(), pagetypeinfo.as_ref(), &zoneinfo[0]);
        Ok(Capture {
            name,
            live: self.live,
            release,
            distances: self.distances(&nodes)?,
            hidden_cpus: possible.is_some_and(|(_, list)| list.ids.len() > online.len()),
            iomem: self.required("iomem.txt", iomem::parse)?,
            pagetypeinfo,
            meminfo,
            cmdline: self
                .optional("cmdline.txt", cmdline::parse)?
                .map_or_else(cmdline::Document::default, |(_, document)| document),
            cpus_online: cpus_online.map(|(file, list)| (file, ids(list))),
            meta,
            settings,
            nodes,
            zoneinfo,
            node_states,
            page,
        })
    }

    fn zoneinfo(&self, x86: bool) -> Result<Vec<ZoneFile>, Error> {
        let (must, may): (&[&str], &[&str]) = match self.live {
            true => (&["zoneinfo.txt"], &[]),
            false => (&["recalc-zoneinfo.txt", "zoneinfo.txt"], &["folded-zoneinfo.txt"]),
        };
        let read = |name: &&str, text: &str| ZoneFile::read(self.files.path(name), text, x86);
        let mut files = Vec::new();
        for name in must {
            files.push(read(name, &self.must(name)?)?);
        }
        for name in may {
            if let Some(text) = self.may(name)? {
                files.push(read(name, &text)?);
            }
        }
        Ok(files)
    }

    /// Whether the kernel was built without NUMA: then it has no texts of nodes at all.
    fn is_without_nodes(&self, ids: &[u32]) -> Result<bool, Error> {
        let texts = ["sys-node-online.txt", "node0-cpulist.txt", "node0-distance.txt"];
        let mut any = ids != [0];
        for name in texts {
            any |= self.may(name)?.is_some();
        }
        Ok(!any && self.may("sys-cpu-online.txt")?.is_some())
    }

    fn only_node(&self) -> Result<Node, Error> {
        let name = "sys-cpu-online.txt";
        let cpus = self.parse(name, &self.must(name)?, cpulist::parse)?.ids;
        let file = self.files.path(name);
        Ok(Node { id: 0, cpus, files: [file.clone(), file], has_distances: false, meminfo: None })
    }

    fn node(&self, id: u32) -> Result<Node, Error> {
        let names = ["cpulist", "distance"].map(|file| format!("node{id}-{file}.txt"));
        let cpus = self.parse(&names[0], &self.must(&names[0])?, cpulist::parse)?.ids;
        let meminfo = self.optional(&format!("node{id}-meminfo.txt"), meminfo::parse)?;
        let files = names.map(|name| self.files.path(&name));
        Ok(Node { id, cpus, files, has_distances: true, meminfo })
    }

    /// Reads texts that are not judged, to report damage.
    fn check_others(&self, nodes: &[Node]) -> Result<(), Error> {
        for name in ["buddyinfo.txt", "folded-buddyinfo.txt"] {
            self.optional(name, buddyinfo::parse)?;
        }
        let counters = ["vmstat", "numastat"];
        let of_nodes =
            nodes.iter().flat_map(|node| counters.map(|c| format!("{c}-node{}.txt", node.id)));
        let of_machine = ["vmstat.txt", "folded-vmstat.txt"].map(str::to_owned);
        for name in of_machine.into_iter().chain(of_nodes) {
            self.optional(&name, vmstat::parse)?;
        }
        for name in ["sys-cpu-present.txt", "sys-node-possible.txt"] {
            self.optional(name, cpulist::parse)?;
        }
        Ok(())
    }

    fn distances(&self, nodes: &[Node]) -> Result<Vec<u8>, Error> {
        let mut table = Vec::new();
        if let [Node { has_distances: false, .. }] = nodes {
            return Ok(vec![10]);
        }
        for (index, node) in nodes.iter().enumerate() {
            let name = format!("node{}-distance.txt", node.id);
            let row = self.parse(&name, &self.must(&name)?, distance::parse)?.distances;
            let (file, count) = (&node.files[1], nodes.len());
            let text = format!("{} distances, but there are {count} nodes", row.len());
            ensure(row.len() == count, || Error::at(file, 1, &text))?;
            let near =
                row.iter().enumerate().find(|(to, d)| **d < 10 || (*to == index && **d != 10));
            if let Some((to, distance)) = near {
                let text = format!(
                    "distance {distance} to node {}: a node is at 10 from itself, others at 10 \
                     to 255",
                    nodes[to].id
                );
                return Err(Error::at(file, 1, &text));
            }
            table.extend(row.into_iter().map(|distance| distance.min(255) as u8));
        }
        Ok(table)
    }
}

/// Refuses a text that leaves out a zone.
fn check_pagetypeinfo(
    file: &str,
    document: &pagetypeinfo::Document,
    zones: &ZoneFile,
) -> Result<(), Error> {
    let rows = || document.nodes.iter().flat_map(|node| &node.blocks);
    for zone in zones.zones.iter().filter(|zone| zone.is_populated()) {
        let has = rows().any(|row| (row.node, &row.zone) == (zone.node, &zone.name));
        let end = document.to_string().lines().count() as u64 + 1;
        let text = format!("zone {} of node {} is missing", zone.name, zone.node);
        ensure(has, || Error::at(file, end, &text))?;
    }
    Ok(())
}

/// The smallest size of a page with which `MemTotal` is no more than what is present, and the order
/// of a pageblock. A kernel that frees memory late manages less than it counts.
fn page(
    meminfo: Option<&(String, meminfo::Document)>,
    pagetypeinfo: Option<&(String, pagetypeinfo::Document)>,
    zones: &ZoneFile,
) -> PageRules {
    let mut page = PageRules::OWN;
    let total = meminfo.and_then(|(_, document)| document.value("MemTotal"));
    let present: u128 = zones.zones.iter().map(|zone| u128::from(zone.present.value)).sum();
    if let Some(total) = total.map(u128::from) {
        let kbytes = |shift: u8| u128::from(PageRules { shift, ..PageRules::OWN }.kbytes());
        let holds = |shift: &u8| total <= present * kbytes(*shift);
        page.shift = PAGE_SHIFTS.into_iter().find(holds).unwrap_or(page.shift);
    }
    let node = pagetypeinfo.and_then(|(_, document)| document.nodes.first());
    if let Some(node) = node {
        page.block_order = u8::try_from(node.pageblock_order).unwrap_or(u8::MAX);
    }
    page
}
