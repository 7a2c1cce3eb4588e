//! Rules that can be broken on purpose, to see that the simulator finds what comes of it. Only tests
//! and whoever asks for it by `--broken` break any.

/// A rule that is not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Broken {
    /// The leader takes a silent target for dead while its lease lasts.
    DeadTooEarly,
    /// A lease counts from the answer of a leader, whoever confirmed that leader last.
    LeaseFromTheAnswer,
    /// A target answers without a lease.
    NoLease,
    /// Tombstones go while somebody is away or objects move.
    TombstonesTooEarly,
    /// A change is shown that not all holders have.
    ShownTooEarly,
    /// A write is acknowledged before the other holders have it.
    AckTooEarly,
    /// A target that missed something answers alone.
    LaggingAnswers,
    /// A copy that belongs elsewhere is dropped before it is sent.
    DroppedTooEarly,
    /// Copies are ordered by their versions, whatever the state was that they were written under.
    NoEpochs,
    /// All counts as settled although some target was dead or restarted meanwhile.
    SettledTooEarly,
    /// A target that lost a disk says of what was there that it never was.
    LossForgotten,
    /// A process that took the place of one that died a moment ago says nothing of that.
    QuickRestartUnnoticed,
}
