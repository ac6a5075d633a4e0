//! The one door through which every tool is used.
