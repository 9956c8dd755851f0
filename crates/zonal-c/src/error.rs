//! Codes, the text of each thread's last error, and the border that no panic crosses.

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use zonal::{AllocError, BudgetError, BuildError, FreeError, FreeFault, RangeError};
use zonal::{RangeRefusal, Refusal};

/// What a call returns, or leaves in zonal_last_error_code. 0 is success.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub enum zonal_error {
    /// Success.
    ZONAL_OK = 0,
    /// The handle is null, destroyed, or no handle of this kind.
    ZONAL_E_HANDLE = 1,
    /// An argument or an option has a value that cannot be.
    ZONAL_E_ARGUMENT = 2,
    /// A struct's size field is not that of any version of the struct.
    ZONAL_E_STRUCT = 3,
    /// No zone may serve the request: a watermark, or no free block that large.
    ZONAL_E_NO_MEMORY = 4,
    /// The operating system refused.
    ZONAL_E_SYSTEM = 5,
    /// An address that is not at the start of a page.
    ZONAL_E_UNALIGNED = 6,
    /// An address outside of the pool's memory, such as another pool's block.
    ZONAL_E_FOREIGN = 7,
    /// The block is free already.
    ZONAL_E_DOUBLE_FREE = 8,
    /// The block was handed out with another order.
    ZONAL_E_WRONG_ORDER = 9,
    /// No block that can be freed like this starts there.
    ZONAL_E_NOT_A_BLOCK = 10,
    /// A page of the range that was asked for is not free.
    ZONAL_E_IN_THE_WAY = 11,
    /// Blocks are handed out, a consumer is registered, or another thread changes the same thing.
    ZONAL_E_BUSY = 12,
    /// Not from inside a callback.
    ZONAL_E_INSIDE = 13,
    /// The request failed because the program asked for it (zonal_fail_alloc).
    ZONAL_E_INJECTED = 14,
    /// A page's metadata was overwritten, or the pool breaks an invariant.
    ZONAL_E_CORRUPT = 15,
    /// A defect of the library: it panicked, and the panic ended here.
    ZONAL_E_INTERNAL = 16,
}

use zonal_error::*;

/// A code and its sentence.
pub(crate) struct Failure {
    pub(crate) code: zonal_error,
    pub(crate) text: String,
}

impl Failure {
    pub(crate) fn new(code: zonal_error, text: impl Into<String>) -> Failure {
        Failure { code, text: text.into() }
    }
    pub(crate) fn argument(text: impl Into<String>) -> Failure {
        Failure::new(ZONAL_E_ARGUMENT, text)
    }
}

thread_local! {
    static CODE: Cell<zonal_error> = const { Cell::new(ZONAL_OK) };
    static TEXT: RefCell<Option<CString>> = const { RefCell::new(None) };
}

/// Keeps a failure as this thread's last error. Returns its code.
#[cold]
pub(crate) fn fail(failure: Failure) -> i32 {
    let Failure { code, text } = failure;
    // A thread that ends may have no such values any more: the code is still returned.
    let _ = CODE.try_with(|last| last.set(code));
    let text = CString::new(text.replace('\0', "?")).unwrap_or_default();
    let _ = TEXT.try_with(|last| {
        if let Ok(mut last) = last.try_borrow_mut() {
            *last = Some(text);
        }
    });
    code as i32
}

/// What a call returns when it fails.
pub(crate) trait Failed {
    /// `code` is that of the failure, which is kept already.
    fn failed(code: i32) -> Self;
}

impl Failed for i32 {
    fn failed(code: i32) -> i32 {
        code
    }
}
impl Failed for i64 {
    fn failed(_: i32) -> i64 {
        -1
    }
}
impl Failed for u64 {
    fn failed(_: i32) -> u64 {
        0
    }
}
impl Failed for usize {
    fn failed(_: i32) -> usize {
        0
    }
}
impl<T> Failed for *mut T {
    fn failed(_: i32) -> *mut T {
        std::ptr::null_mut()
    }
}

/// Runs the body of a call: its failure becomes the thread's last error, and a panic one of them
/// (CAPI-2).
pub(crate) fn border<T: Failed>(body: impl FnOnce() -> Result<T, Failure>) -> T {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => value,
        Ok(Err(failure)) => T::failed(fail(failure)),
        Err(_) => T::failed(fail(Failure::new(
            ZONAL_E_INTERNAL,
            "the library panicked; its message is on stderr. Please report it",
        ))),
    }
}

impl From<AllocError> for Failure {
    fn from(error: AllocError) -> Failure {
        Failure::new(refusal(error.details().why), error.to_string())
    }
}

fn refusal(why: Refusal) -> zonal_error {
    match why {
        Refusal::Injected => ZONAL_E_INJECTED,
        Refusal::BadGfp(_) => ZONAL_E_ARGUMENT,
        _ => ZONAL_E_NO_MEMORY,
    }
}

impl From<FreeError> for Failure {
    fn from(error: FreeError) -> Failure {
        let code = match error.details() {
            FreeFault::Unaligned { .. } => ZONAL_E_UNALIGNED,
            FreeFault::Foreign { .. } => ZONAL_E_FOREIGN,
            FreeFault::DoubleFree { .. } => ZONAL_E_DOUBLE_FREE,
            FreeFault::WrongOrder { .. } => ZONAL_E_WRONG_ORDER,
            FreeFault::Corrupt => ZONAL_E_CORRUPT,
            FreeFault::NoPages => ZONAL_E_ARGUMENT,
            _ => ZONAL_E_NOT_A_BLOCK,
        };
        Failure::new(code, error.to_string())
    }
}

impl From<RangeError> for Failure {
    fn from(error: RangeError) -> Failure {
        let code = match error.why() {
            RangeRefusal::Empty | RangeRefusal::Align(_) => ZONAL_E_ARGUMENT,
            RangeRefusal::Refused(why) => refusal(why),
            RangeRefusal::TooLong { .. } => ZONAL_E_NO_MEMORY,
            RangeRefusal::Unaligned { .. } => ZONAL_E_UNALIGNED,
            RangeRefusal::Outside(_) => ZONAL_E_FOREIGN,
            RangeRefusal::InTheWay(..) => ZONAL_E_IN_THE_WAY,
            _ => ZONAL_E_NOT_A_BLOCK,
        };
        Failure::new(code, error.to_string())
    }
}

impl From<BuildError> for Failure {
    fn from(error: BuildError) -> Failure {
        let code = match &error {
            BuildError::Map(_)
            | BuildError::Bind { .. }
            | BuildError::Thread { .. }
            | BuildError::Observe { .. } => ZONAL_E_SYSTEM,
            BuildError::Online(_) => ZONAL_E_INTERNAL,
            _ => ZONAL_E_ARGUMENT,
        };
        Failure::new(code, error.to_string())
    }
}

impl From<BudgetError> for Failure {
    fn from(error: BudgetError) -> Failure {
        Failure::new(ZONAL_E_BUSY, error.to_string())
    }
}

/// The code of the last call of this thread that failed; ZONAL_OK if none did. A call that
/// succeeds does not change it.
#[unsafe(no_mangle)]
pub extern "C" fn zonal_last_error_code() -> i32 {
    CODE.try_with(Cell::get).unwrap_or(ZONAL_OK) as i32
}

/// What went wrong in the last call of this thread that failed: where, what was expected and what
/// to do, in English. Never null; valid until the thread's next call of this library that fails.
#[unsafe(no_mangle)]
pub extern "C" fn zonal_last_error() -> *const c_char {
    let text = TEXT.try_with(|last| {
        last.try_borrow().ok().and_then(|last| last.as_ref().map(|text| text.as_ptr()))
    });
    text.ok().flatten().unwrap_or(c"no call of this thread has failed".as_ptr())
}

/// A code in words. Never null, and valid for ever.
#[unsafe(no_mangle)]
pub extern "C" fn zonal_strerror(code: i32) -> *const c_char {
    let known = NAMES.iter().find(|(known, _)| *known as i32 == code);
    known.map_or(c"no code of zonal", |(_, text)| *text).as_ptr()
}

/// Each code in words.
const NAMES: [(zonal_error, &CStr); 17] = [
    (ZONAL_OK, c"success"),
    (ZONAL_E_HANDLE, c"not a live handle"),
    (ZONAL_E_ARGUMENT, c"invalid argument"),
    (ZONAL_E_STRUCT, c"struct of unknown size"),
    (ZONAL_E_NO_MEMORY, c"no memory"),
    (ZONAL_E_SYSTEM, c"refused by the operating system"),
    (ZONAL_E_UNALIGNED, c"not at the start of a page"),
    (ZONAL_E_FOREIGN, c"outside of the pool"),
    (ZONAL_E_DOUBLE_FREE, c"free already"),
    (ZONAL_E_WRONG_ORDER, c"wrong order"),
    (ZONAL_E_NOT_A_BLOCK, c"not a block that can be freed like this"),
    (ZONAL_E_IN_THE_WAY, c"a page of the range is not free"),
    (ZONAL_E_BUSY, c"busy"),
    (ZONAL_E_INSIDE, c"not from inside a callback"),
    (ZONAL_E_INJECTED, c"failed on purpose"),
    (ZONAL_E_CORRUPT, c"metadata was overwritten"),
    (ZONAL_E_INTERNAL, c"defect of the library"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn last() -> String {
        // SAFETY: (1) never null, ends with zero, and no other call of this thread fails meanwhile.
        unsafe { CStr::from_ptr(zonal_last_error()) }.to_str().unwrap().to_owned()
    }

    #[test]
    fn a_panic_ends_at_the_border_as_an_error() {
        let code: i32 = border(|| panic!("planted"));
        assert_eq!(code, ZONAL_E_INTERNAL as i32);
        assert!(last().contains("panicked"));
        let pointer: *mut u8 = border(|| panic!("planted"));
        assert!(pointer.is_null());
    }

    #[test]
    fn each_code_has_words_of_its_own() {
        for (index, (code, text)) in NAMES.iter().enumerate() {
            assert_eq!(*code as usize, index);
            assert!(NAMES[..index].iter().all(|(_, other)| other != text));
        }
    }

    #[test]
    fn a_text_with_a_zero_byte_is_kept() {
        fail(Failure::argument("one\0two"));
        assert_eq!(last(), "one?two");
    }
}
