//! Splits Rust source into code and comments, and finds functions, modules and test code in it.
//!
//! Both views have the length and the line ends of the source, so an offset means the same place
//! in all three:
//!
//! ```text
//! source    let s = "a // b"; // why
//! code      let s = """"""""";          literals become quotes, comments become blanks
//! comments                    // why    all else becomes blanks
//! ```

use std::ops::Range;

/// One Rust file, split.
pub struct Rust {
    /// The source with comments blanked out and literals replaced by quote signs.
    pub code: String,
    /// The source with everything but comments blanked out.
    pub comments: String,
    /// Offset of each line's first byte.
    line_starts: Vec<usize>,
    /// Items under `#[cfg(test)]` or `#[test]`.
    test_ranges: Vec<Range<usize>>,
    /// `use` items.
    imports: Vec<Range<usize>>,
}

/// A `fn` that has a body.
#[derive(Debug, PartialEq, Eq)]
pub struct Function {
    pub name: String,
    /// From the `fn` to the brace that closes the body.
    pub range: Range<usize>,
}

impl Rust {
    pub fn new(text: &str) -> Self {
        let (code, comments) = split(text);
        let line_starts =
            std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        let test_ranges = test_ranges(&code);
        let imports = imports(&code);
        Self { code, comments, line_starts, test_ranges, imports }
    }

    /// Line of an offset, counted from 1.
    pub fn line(&self, offset: usize) -> usize {
        self.line_starts.partition_point(|&start| start <= offset)
    }

    /// True if the offset is in an item under `#[cfg(test)]` or `#[test]`.
    pub fn is_test(&self, offset: usize) -> bool {
        self.test_ranges.iter().any(|range| range.contains(&offset))
    }

    /// True if the offset is in a `use` item.
    pub fn is_import(&self, offset: usize) -> bool {
        self.imports.iter().any(|range| range.contains(&offset))
    }

    /// Comment text of the lines `first..=last`, counted from 1.
    pub fn comment_lines(&self, first: usize, last: usize) -> &str {
        let start = self.line_starts[first.max(1) - 1];
        let end = self.line_starts.get(last).copied().unwrap_or(self.comments.len());
        &self.comments[start..end]
    }

    /// Identifiers and keywords of the code with their offsets.
    pub fn words(&self) -> impl Iterator<Item = (usize, &str)> {
        words(&self.code)
    }

    /// All functions that have a body, outer ones first.
    pub fn functions(&self) -> Vec<Function> {
        let mut found = Vec::new();
        for (at, _) in self.words().filter(|&(_, word)| word == "fn") {
            let rest = self.code[at + 2..].trim_start();
            // `fn(u32)` is a type; `fn $name` stands in a macro.
            let name: String = rest.chars().take_while(|&c| is_word(c) || c == '$').collect();
            if name.is_empty() {
                continue;
            }
            if let Some(body) = item_body(&self.code, at) {
                found.push(Function { name, range: at..body.end });
            }
        }
        found
    }

    /// Bodies of `mod name { … }`.
    pub fn inline_modules(&self) -> Vec<Range<usize>> {
        let words = self.words().filter(|&(_, word)| word == "mod");
        words.filter_map(|(at, _)| item_body(&self.code, at)).collect()
    }

    /// Offset at which the statement or item around `offset` starts.
    pub fn statement_start(&self, offset: usize) -> usize {
        let after = self.code[..offset].rfind([';', '{', '}']).map_or(0, |at| at + 1);
        let blanks = self.code[after..offset].len() - self.code[after..offset].trim_start().len();
        after + blanks
    }
}

/// A character of an identifier.
pub fn is_word(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

/// Identifiers, keywords and numbers of `text` with their offsets.
pub fn words(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut at = 0;
    text.split(|c| !is_word(c)).filter_map(move |word| {
        let start = at;
        at += word.len();
        // Step over the separator, which may be longer than a byte.
        at += text[at..].chars().next().map_or(0, char::len_utf8);
        (!word.is_empty()).then_some((start, word))
    })
}

/// The braces after `from`, if they come before the `;` that would end an item without a body.
fn item_body(code: &str, from: usize) -> Option<Range<usize>> {
    let mut nesting = 0_usize;
    for (at, c) in code[from..].char_indices() {
        match c {
            '(' | '[' => nesting += 1,
            ')' | ']' => nesting = nesting.saturating_sub(1),
            ';' if nesting == 0 => return None,
            '{' if nesting == 0 => return block(code, from + at),
            _ => {}
        }
    }
    None
}

/// From the opening brace at `open` to just after the one that closes it.
fn block(code: &str, open: usize) -> Option<Range<usize>> {
    let mut nesting = 0_usize;
    for (at, c) in code[open..].char_indices() {
        match c {
            '{' => nesting += 1,
            '}' if nesting == 1 => return Some(open..open + at + 1),
            '}' => nesting -= 1,
            _ => {}
        }
    }
    None
}

fn test_ranges(code: &str) -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    let outer = code.match_indices("#[");
    for (at, sign) in outer.chain(code.match_indices("#![")) {
        let Some(length) = code[at..].find(']') else { continue };
        let attribute: String = code[at + sign.len()..at + length].split_whitespace().collect();
        let only_in_tests = attribute == "test"
            || attribute == "cfg(test)"
            || (attribute.starts_with("cfg(all(")
                && !attribute.contains("not(")
                && !attribute.contains("any(")
                && words(&attribute).any(|(_, word)| word == "test"));
        if !only_in_tests {
            continue;
        }
        let after = at + length + 1;
        let end = match item_body(code, after) {
            _ if sign == "#![" => code.len(),
            Some(body) => body.end,
            None => code[after..].find(';').map_or(code.len(), |semicolon| after + semicolon),
        };
        ranges.push(at..end);
    }
    ranges
}

/// From each `use` to its `;`. The `use<'a>` of a bound is no item.
fn imports(code: &str) -> Vec<Range<usize>> {
    let starts = words(code).filter(|&(at, word)| word == "use" && !code[at..].starts_with("use<"));
    starts.map(|(at, _)| at..code[at..].find(';').map_or(code.len(), |end| at + end)).collect()
}

/// The kind of a stretch of source.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Code,
    Comment,
    Literal,
}

fn split(text: &str) -> (String, String) {
    let (mut code, mut comments) = (Vec::new(), Vec::new());
    let mut at = 0;
    while at < text.len() {
        let (kind, length) = token(text, at);
        debug_assert!(length > 0, "the scan must move on");
        for &byte in &text.as_bytes()[at..at + length] {
            let keep = byte == b'\n';
            code.push(match kind {
                Kind::Code => byte,
                _ if keep => byte,
                Kind::Literal => b'"',
                Kind::Comment => b' ',
            });
            comments.push(if keep || kind == Kind::Comment { byte } else { b' ' });
        }
        at += length;
    }
    let utf8 = |bytes| String::from_utf8(bytes).expect("whole characters are kept or replaced");
    (utf8(code), utf8(comments))
}

/// Kind and length of what starts at `at`.
fn token(text: &str, at: usize) -> (Kind, usize) {
    let rest = &text[at..];
    let Some(first) = rest.chars().next() else { return (Kind::Code, 0) };
    if rest.starts_with("//") {
        return (Kind::Comment, rest.find('\n').unwrap_or(rest.len()));
    }
    if rest.starts_with("/*") {
        return (Kind::Comment, block_comment_length(rest));
    }
    match first {
        '"' => (Kind::Literal, string_length(rest)),
        '\'' => match char_length(rest) {
            Some(length) => (Kind::Literal, length),
            None => (Kind::Code, 1),
        },
        c if is_word(c) => {
            let word = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
            match raw_string_length(&rest[..word], &rest[word..]) {
                Some(length) => (Kind::Literal, word + length),
                None => (Kind::Code, word),
            }
        }
        c => (Kind::Code, c.len_utf8()),
    }
}

fn block_comment_length(rest: &str) -> usize {
    let (mut at, mut nesting) = (0, 0_usize);
    while at < rest.len() {
        if rest[at..].starts_with("/*") {
            nesting += 1;
            at += 2;
        } else if rest[at..].starts_with("*/") {
            nesting -= 1;
            at += 2;
            if nesting == 0 {
                return at;
            }
        } else {
            at += rest[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    rest.len()
}

fn string_length(rest: &str) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// `'x'` or `'\n'`; `None` for a lifetime.
fn char_length(rest: &str) -> Option<usize> {
    let mut chars = rest.char_indices().skip(1);
    let (_, first) = chars.next()?;
    if first == '\\' {
        chars.next()?;
        return chars.find(|&(_, c)| c == '\'').map(|(at, _)| at + 1);
    }
    chars.next().filter(|&(_, c)| c == '\'').map(|(at, _)| at + 1)
}

/// `#"…"#` after one of the prefixes of raw strings.
fn raw_string_length(prefix: &str, rest: &str) -> Option<usize> {
    if !matches!(prefix, "r" | "br" | "cr") {
        return None;
    }
    let hashes = rest.len() - rest.trim_start_matches('#').len();
    if !rest[hashes..].starts_with('"') {
        return None;
    }
    let close = format!("\"{}", "#".repeat(hashes));
    let body = hashes + 1;
    Some(rest[body..].find(&close).map_or(rest.len(), |at| body + at + close.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_and_comments_are_told_apart() {
        let (code, comments) = split("let s = \"a // b\"; // why\nx /* a /* b */ c */ y");
        assert_eq!(code, "let s = \"\"\"\"\"\"\"\";       \nx                   y");
        assert_eq!(comments, "                  // why\n  /* a /* b */ c */  ");
    }

    #[test]
    fn literals_of_every_kind_are_hidden() {
        for literal in [
            r#""{ \" \\ unsafe""#,
            "r\"\\ unsafe {\"",
            "r##\"unsafe \"# {\"##",
            "b\"unsafe {\"",
            "'{'",
            r"'\''",
            r"'\u{7b}'",
            "'é'",
            "b'{'",
        ] {
            let text = format!("f({literal}) + end");
            let (code, comments) = split(&text);
            assert_eq!(code.len(), text.len(), "{literal}");
            assert!(!code.contains(['{', '\'', '\\', 'é']), "{literal}: {code}");
            assert!(!code.contains("unsafe"), "{literal}: {code}");
            assert!(code.ends_with(") + end"), "{literal}: {code}");
            assert_eq!(comments.trim(), "", "{literal}");
        }
    }

    #[test]
    fn lifetimes_and_raw_identifiers_are_code() {
        let text = "fn f<'a>(r#type: &'a str, bar: char) -> &'static str { r#type }";
        assert_eq!(split(text).0, text);
    }

    #[test]
    fn unfinished_tokens_end_with_the_file() {
        for text in ["\"abc", "/* abc", "r#\"abc", "'", "'\\", "//"] {
            let (code, comments) = split(text);
            assert_eq!((code.len(), comments.len()), (text.len(), text.len()), "{text}");
        }
    }

    #[test]
    fn functions_have_a_name_and_a_body() {
        let text = "trait T { fn a(&self) -> [u8; 4]; fn b(x: fn(u8)) { if x { } } }\n\
                    const fn c<const N: usize>() -> [u8; N] {\n    [0; N]\n}\n";
        let rust = Rust::new(text);
        let functions = rust.functions();
        let names: Vec<&str> = functions.iter().map(|f| f.name.as_str()).collect();
        assert_eq!(names, ["b", "c"]);
        assert_eq!(&text[functions[0].range.clone()], "fn b(x: fn(u8)) { if x { } }");
        assert_eq!(rust.line(functions[1].range.start), 2);
        assert_eq!(rust.line(functions[1].range.end - 1), 4);
    }

    #[test]
    fn test_items_are_found() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\nfn c() {}\n\
                    #[cfg(all(test, unix))]\nuse d;\nfn e() {}\n#[cfg(not(test))]\nfn f() {}\n\
                    #[test]\nfn g() {}\n#[cfg(any(test, x))]\nfn h() {}\n";
        let rust = Rust::new(text);
        for (name, expected) in
            [("a", 0), ("b", 1), ("c", 0), ("d", 1), ("e", 0), ("f", 0), ("g", 1), ("h", 0)]
        {
            let (at, _) = rust.words().find(|&(_, word)| word == name).expect("it is there");
            assert_eq!(rust.is_test(at), expected == 1, "{name}");
        }
        assert!(Rust::new("#![cfg(test)]\nfn a() {}\nfn b() {}\n").is_test(30));
        assert!(!Rust::new("#![no_std]\n\n\n\nfn a() {}\nfn b() {}\n").is_test(30));
    }

    #[test]
    fn imports_end_with_their_semicolon() {
        let text = "use a::{b, c};\nfn f() -> impl D + use<> { pub use e::*; g }";
        let rust = Rust::new(text);
        let imported = rust.words().filter(|&(at, _)| rust.is_import(at)).map(|(_, word)| word);
        assert_eq!(imported.collect::<Vec<_>>(), ["use", "a", "b", "c", "use", "e"]);
    }

    #[test]
    fn a_statement_starts_after_the_one_before() {
        let text = "{ a();\n    // why\n    b\n        .c(d); }";
        let rust = Rust::new(text);
        assert_eq!(rust.line(rust.statement_start(text.find(".c").expect("there"))), 3);
    }

    #[test]
    fn words_have_their_offsets() {
        let found: Vec<_> = words("a→b_1 (c)").collect();
        assert_eq!(found, [(0, "a"), (4, "b_1"), (9, "c")]);
    }
}
