//! The page: one file with its style and its plots inside, by day and by night.

use super::plot;
use super::text::escape;

const STYLE: &str = ":root{color-scheme:light dark;--back:#fff;--ink:#222;--quiet:#666;\
--rule:#ddd;--tint:#f4f4f4;--bar:#c8643c;--miss:#b3261e}\
@media(prefers-color-scheme:dark){:root{--back:#16181b;--ink:#ddd;--quiet:#999;--rule:#3a3d42;\
--tint:#24272b;--bar:#b0603c;--miss:#ff8a80}}\
body{font:15px/1.5 system-ui,sans-serif;max-width:80em;margin:2em auto;padding:0 1em;\
color:var(--ink);background:var(--back)}h2{margin-top:2.5em;border-top:1px solid var(--rule);\
padding-top:.5em}a{color:inherit}.wide{overflow-x:auto}\
table{border-collapse:collapse;margin:1em 0}td,th{padding:.25em .5em;text-align:right;\
border-bottom:1px solid var(--rule);vertical-align:top;font-variant-numeric:tabular-nums}\
td:first-child,th:first-child{text-align:left}.words td,.words th{text-align:left}\
.words td:first-child code{white-space:nowrap}\
.summary td{white-space:nowrap}td small{display:block;color:var(--quiet);\
white-space:nowrap}td .miss{color:var(--miss);font-weight:600}\
.runs{font-size:12px}.runs td{white-space:nowrap}.runs td:last-child,.runs th:last-child\
{text-align:left;white-space:normal;overflow-wrap:anywhere;min-width:32em}\
.plots{display:grid;gap:1em;grid-template-columns:repeat(auto-fill,\
minmax(20em,1fr))}figure{margin:1em 0}figcaption{font-weight:600}svg{width:100%;height:auto}\
.legend{margin:0;display:flex;flex-wrap:wrap;gap:0 1.2em}\
.legend span{overflow-wrap:anywhere}figcaption{overflow-wrap:anywhere}.says:hover\
{stroke:var(--quiet)}.conclusion{font-weight:600}.without{color:var(--quiet)}\
code{background:var(--tint);padding:.1em .3em;overflow-wrap:anywhere}\
summary{cursor:pointer}\
@media(max-width:40em){.words thead{display:none}.words tr,.words td{display:block}\
.words tr{border-bottom:1px solid var(--rule);padding:.4em 0}.words td{border:0;padding:.1em 0}\
.words td:empty{display:none}.wide svg{min-width:46em}\
.wide :not(.words):not(.runs)>*>tr>:first-child{position:sticky;left:0;\
background:var(--back)}.summary td,.summary small\
{white-space:normal}}";

/// A page of this title with this body.
pub(super) fn page(title: &str, body: &str) -> String {
    let (title, plots) = (escape(title), plot::style());
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <title>{title}</title><style>{STYLE}{plots}</style></head>\
         <body><h1>{title}</h1>{body}</body></html>\n"
    )
}

/// A table of HTML: names of columns, and rows of fields that are escaped here.
pub(super) fn table(
    class: &str,
    names: &[&str],
    rows: impl Iterator<Item = Vec<String>>,
) -> String {
    let rows = rows.map(|row| row.iter().map(|field| escape(field)).collect());
    marked(class, names, rows)
}

/// The same with fields that are HTML already.
pub(super) fn marked(
    class: &str,
    names: &[&str],
    rows: impl Iterator<Item = Vec<String>>,
) -> String {
    // Names may break after their underscores.
    let name = |name: &&str| format!("<th>{}</th>", escape(name).replace('_', "_<wbr>"));
    let head: String = names.iter().map(name).collect();
    let cells = |row: Vec<String>| -> String {
        row.iter().map(|field| format!("<td>{field}</td>")).collect()
    };
    let body: String = rows.map(|row| format!("<tr>{}</tr>", cells(row))).collect();
    format!(
        "<div class=\"wide\"><table class=\"{class}\"><thead><tr>{head}</tr></thead>\
         <tbody>{body}</tbody></table></div>"
    )
}
