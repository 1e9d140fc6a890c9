"""Rules of MetaSchedule for functions that name them."""
