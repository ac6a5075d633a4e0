//! Ids of Discord's: numbers that travel as text.

use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;

use serde::Deserialize;

macro_rules! ids {
    ($($name:ident)*) => {$(
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
        #[serde(try_from = "String")]
        pub(crate) struct $name(NonZeroU64);

        impl $name {
            /// Returns the number.
            #[allow(dead_code, reason = "not every id is sent on as a number")]
            pub(super) const fn get(self) -> u64 {
                self.0.get()
            }
        }

        impl From<NonZeroU64> for $name {
            fn from(id: NonZeroU64) -> Self {
                Self(id)
            }
        }

        impl FromStr for $name {
            type Err = std::num::ParseIntError;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                text.parse().map(Self)
            }
        }

        impl TryFrom<String> for $name {
            type Error = std::num::ParseIntError;
            fn try_from(text: String) -> Result<Self, Self::Error> {
                text.parse()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    )*};
}

ids! { ChannelId InteractionId MessageId UserId }
