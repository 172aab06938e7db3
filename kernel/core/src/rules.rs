//! The rules by which something unusual falls out of a run, by name.
//!
//! An ordinary build keeps every rule. A build with the feature `planted` can break one of them, so
//! that a test can show that the comparison of both makers finds it. It can also panic where a test
//! says.

macro_rules! rules {
    ($($name:ident),+ $(,)?) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(usize)]
        pub enum Rule { $($name),+ }

        /// The names of all rules.
        pub const NAMES: &[&str] = &[$(stringify!($name)),+];
    };
}

rules! {
    // Frames.
    FrameIsComplete,
    HeaderIsJson,
    HeaderIsShort,
    HeaderFitsFrame,
    // The JSON of a header.
    ControlsAreEscaped,
    SurrogatesArePaired,
    NumbersAreCanonical,
    NumbersFit,
    NothingFollows,
    BooleansAreWords,
    NeededFieldsAreThere,
    // A send.
    BatchIsNoSend,
    FlagIsPlain,
    SysFlagIsPlain,
    TopicIsPlain,
    TopicIsShort,
    PropertiesAreShort,
    PropertiesHaveNames,
    PropertiesHaveValues,
    DelayIsOdd,
    TransactionIsOdd,
    WaitIsOdd,
    ClusterIsOdd,
    SenderIsOdd,
    TimerSourceIsOdd,
    ReceiptIsOdd,
    ServiceOfRocketMq5IsOdd,
    KeysAreFew,
    QueueExists,
    // A record that is laid out.
    BodyIsAllowed,
    RecordIsAllowed,
    StoredPropertiesFit,
    RoomIsLeft,
    // A record that is read.
    MagicIsThat,
    PlaceIsThat,
    EntryIsThat,
    HostsAreShort,
    PartsAddUp,
    TopicIsDirectory,
    ScheduleIsOdd,
    CrcIsThat,
    LostSectorIsOdd,
    // Queues and index.
    PreparedIsNotForConsumers,
    NumbersFollow,
    RollbackIsNotIndexed,
    IndexedIsLeftOut,
    IndexHasRoom,
    ChainsGoBack,
    TimeIsNotNegative,
}

#[cfg(feature = "planted")]
mod planted {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Mutex, PoisonError};

    static BROKEN: AtomicUsize = AtomicUsize::new(usize::MAX);
    static PANICS_AT: Mutex<String> = Mutex::new(String::new());

    /// Breaks the rule of this name and keeps all others; an unknown name breaks none.
    pub fn plant(name: &str) -> bool {
        let number = super::NAMES.iter().position(|known| *known == name);
        BROKEN.store(number.unwrap_or(usize::MAX), Ordering::Relaxed);
        number.is_some()
    }

    pub fn holds(rule: super::Rule) -> bool {
        BROKEN.load(Ordering::Relaxed) != rule as usize
    }

    /// Makes the place of this name panic, and no other.
    pub fn plant_panic(place: &str) {
        *PANICS_AT.lock().unwrap_or_else(PoisonError::into_inner) = place.to_owned();
    }

    /// Panics if a test wants it at this place.
    #[allow(clippy::panic)]
    pub fn may_panic(place: &str) {
        let wanted = PANICS_AT
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        if wanted == place {
            panic!("planted at {place}");
        }
    }
}

#[cfg(feature = "planted")]
pub use planted::{holds, may_panic, plant, plant_panic};

/// Panics if a test wants it at this place, in a build for tests.
#[cfg(not(feature = "planted"))]
#[inline(always)]
pub const fn may_panic(_place: &str) {}

/// Whether a rule is kept.
#[cfg(not(feature = "planted"))]
#[inline(always)]
pub const fn holds(_rule: Rule) -> bool {
    true
}

/// Whether a rule forbids something that is so.
#[inline(always)]
pub fn forbids(rule: Rule, is_so: bool) -> bool {
    is_so && holds(rule)
}
