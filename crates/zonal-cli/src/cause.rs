//! What an error comes from.

use zonal_replay::ReplayError;
use zonal_trace::TraceError;
use zonal_trace::make::MakeError;

/// The fault of a trace that is read, whoever reads it: some pass it on as their own.
pub fn of_trace(error: &anyhow::Error) -> Option<&TraceError> {
    error.chain().find_map(|cause| {
        let passed_on = || match cause.downcast_ref::<ReplayError>()? {
            ReplayError::Trace(error) => Some(error),
            _ => None,
        };
        let made = || match cause.downcast_ref::<MakeError>()? {
            MakeError::Trace(error) => Some(error),
            _ => None,
        };
        let exported = || match cause.downcast_ref::<zonal_perfetto::Error>()? {
            zonal_perfetto::Error::Trace(error) => Some(error),
            _ => None,
        };
        cause.downcast_ref().or_else(passed_on).or_else(made).or_else(exported)
    })
}
