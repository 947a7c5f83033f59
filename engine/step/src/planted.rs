//! Switches of planted faults: bugs that public engines really had, put back into this one to see whether the
//! simulation finds them. Only builds with `--cfg planted` have them, the simulation's and one for demonstrations; in
//! every other build [`planted!`](crate::planted!) is `false`, and what stands behind it is not in the program.
//!
//! What each fault is, where it is from and which stage is to blame for it is in `sim/src/planted/`.

/// Whether a fault is switched on: `planted!(Name)`. Always `false` in a build without `--cfg planted`.
#[cfg(not(planted))]
#[macro_export]
macro_rules! planted {
    ($fault:ident) => {
        false
    };
}

/// Whether a fault is switched on: `planted!(Name)`.
#[cfg(planted)]
#[macro_export]
macro_rules! planted {
    ($fault:ident) => {
        $crate::planted::is_on($crate::planted::Planted::$fault)
    };
}

#[cfg(planted)]
pub use switches::{Planted, is_on, set};

#[cfg(planted)]
mod switches {
    use core::sync::atomic::{AtomicU32, Ordering};

    macro_rules! faults {
        ($($name:ident $id:literal,)*) => {
            /// A fault, by the name of its switch.
            #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
            #[allow(missing_docs)]
            pub enum Planted { $($name,)* }

            impl Planted {
                /// All of them.
                pub const ALL: &[Planted] = &[$(Planted::$name,)*];

                /// The name that tables and command lines have for it.
                pub const fn id(self) -> &'static str {
                    match self { $(Planted::$name => $id,)* }
                }
            }
        };
    }

    faults! {
        // Speculative fill and rollback.
        ZeroAcceptMinusOneIndex "zero-accept-minus-one-index",
        GrammarRejectsAllDraftsZero "grammar-rejects-all-drafts-zero",
        AcceptCountLongerThanStep "accept-count-longer-than-step",
        AcceptCountZeroesConv "accept-count-zeroes-conv",
        ConvWindowNoRollbackRoom "conv-window-no-rollback-room",
        ConvLayoutTokenIndexed "conv-layout-token-indexed",
        LastStateOnlyAfterVerify "last-state-only-after-verify",
        SpecTokensOverKernelLimit "spec-tokens-over-kernel-limit",
        DraftRewindOffByTwo "draft-rewind-off-by-two",
        ZeroKSkipsDrafterIngest "zero-k-skips-drafter-ingest",
        FullAcceptLeavesMtpHole "full-accept-leaves-mtp-hole",
        PaddedRowsHitOldDraftPages "padded-rows-hit-old-draft-pages",
        DraftBeyondMaxLenClampedToBlock0 "draft-beyond-max-len-clamped-to-block0",
        AcceptIndexUnbounded "accept-index-unbounded",
        PrefillChunkGetsDrafts "prefill-chunk-gets-drafts",
        // Grammar state and drafts.
        MaskOncePerStep "drafts-after-think-unmasked",
        MatcherOneTokenBehind "grammar-one-token-behind-doubled-brace",
        ReasoningEndUnseen "reasoning-end-delta-window-miss",
        TerminationStays "rollback-termination-flag",
        RefusedDraftIsAFault "draft-advance-without-validate",
        MaskRowsByDepth "bitmask-short-rows-first-decode",
        FreeRowsForbidAll "mask-rows-zero-for-plain-requests",
        EndNotInHistory "stop-token-history-missing",
        OnlyCanonicalTokens "forced-token-hides-splits",
        RefusedBeginningStays "partial-accept-leaves-state",
        MaskBufferShared "cached-bitmask-buffer-shared",
        TakenPastTheEnd "accept-past-termination",
        MaskRowsEnumerated "batch-mask-row-by-enumeration",
        MatcherStartsOver "grammar-restart-after-recompute",
        PaddingUnmasked "padded-vocab-ids-unmasked",
        // Overlapped scheduling and preemption.
        PlaceholderUnderflowOnPreempt "placeholder-underflow-on-preempt",
        DiscardOneFrameTooFew "discard-one-frame-too-few",
        StaleMinusOnePlaceholders "stale-minus-one-placeholders",
        PreemptKeepsLatestToken "preempt-keeps-latest-token",
        MixedBatchPenaltyPlaceholder "mixed-batch-penalty-placeholder",
        PadSlotOverwritesLastSubstitution "pad-slot-overwrites-last-substitution",
        PrevStepCountFromCurrentBatch "prev-step-count-read-from-current-batch",
        FutureTokenRingOverwritten "future-token-ring-overwritten",
        PausedRequestDraftsOnReturn "paused-request-drafts-on-return",
        BudgetWithoutDraftTokens "budget-without-draft-tokens",
        AcceptIndexStale "accept-index-stale",
        AcceptedCountReadBeforeCopy "accepted-count-read-before-copy",
        // KV cache, state rows, prefix cache.
        ExternalKeyDropsSalt "external-key-drops-lora-salt-image",
        SameStepHitBeforeWrite "same-step-hit-before-write",
        EagerRegistrationKept "eager-registration-not-rolled-back",
        PhantomHitAfterEviction "phantom-hit-after-eviction",
        FreeWhileNextStepInFlight "free-while-next-step-in-flight",
        OrphanContextBlocks "orphan-context-blocks",
        HybridSnapshotAdvancedInPlace "hybrid-snapshot-advanced-in-place",
        MixedHitScalarHasInitialState "mixed-hit-scalar-has-initial-state",
        MtpDropOnStateGroup "mtp-drop-on-state-group",
        TrimOffsetKeepsForeignTail "trim-offset-keeps-foreign-tail",
        PrefixHitConsumesAllTokens "prefix-hit-consumes-all-tokens",
        HashCollisionUnchecked "hash-collision-unchecked",
        CowReleasesTooManyLocks "cow-releases-too-many-locks",
        CowSlotLeakOnFailedAdmit "cow-slot-leak-on-failed-admit",
        SnapshotSlotOverwrittenByActive "snapshot-slot-overwritten-by-active",
        CheckpointsSurviveRequest "checkpoints-survive-request",
        HitRowReadsFreshSlot "hit-row-reads-fresh-slot",
        // Sampler and rules of logits.
        PenaltyOncePerStep "penalty-per-step-not-per-token",
        FirstDraftCountedTwice "spec-penalty-double-count",
        PenaltiesIgnoredWithDrafts "penalties-silently-ignored-spec",
        OneSeedForAll "seed-ignored-with-unseeded-neighbour",
        TiesByBatchSize "topk-ties-two-backends",
        LogprobsShifted "logprob-offset-with-discards",
        BudgetMissesARow "min-tokens-extra-row",
        NoTopKIsTokenZero "topk-zero-always-token-zero",
        DraftHeldAgainstTheBest "accept-by-equality-biases",
        RowKeepsItsMask "recycled-row-keeps-mask",
        OutputComesBackAsPrompt "logits-rule-state-on-chunk-and-preempt",
        BiasOpensTheMask "allowlist-and-badwords-compose",
        // Kernels and static buffers.
        OneTokenChunkTreatedAsDecode "one-token-chunk-treated-as-decode",
        PadMinusOneClampedToZero "pad-minus-one-clamped-to-zero",
        SentinelEqualsValidSlot "sentinel-equals-valid-slot",
        NegativeIndexWrapsToLast "negative-index-wraps-to-last",
        StaleTailStateScatter "stale-tail-state-scatter",
        PageIndexWrapZeroOutput "page-index-wrap-zero-output",
        NanPlusMinusInf "nan-plus-minus-inf",
        KernelLeavesHolesFirstLaunch "kernel-leaves-holes-first-launch",
        ChunkTailGateZero "chunk-tail-gate-zero",
        LaterWindowStartsFromZeroState "later-window-starts-from-zero-state",
        ConvShortChunkState "conv-short-chunk-state",
        PlanReuseKeyLacksStateRow "plan-reuse-key-lacks-state-row",
        CoBatchChangesConvState "co-batch-changes-conv-state",
        PoolSizeSchedulerVsWorker "pool-size-scheduler-vs-worker",
        // Detokenizer, stop rules, streams, usage.
        StopOnLastTokenOnly "eos-mid-block-continues",
        StopKeepsTokens "stop-string-mid-block-token-trim",
        SentOffsetRetreats "sent-offset-retreats",
        HeldTextDropped "stop-partial-hides-tail",
        TailSkipsTheParser "end-flush-skips-parsers",
        CallsHideLength "finish-reason-hides-length",
        CallsHideLengthInMessages "finish-reason-hides-length-messages",
        StopInReasoning "stop-applied-inside-reasoning",
        AcceptedControlIsShown "draft-special-token-visible",
        OneEndpointUntrimmed "second-endpoint-not-stripped",
        ReasoningCountsTheBlock "reasoning-count-beyond-stop",
        BudgetChargedAhead "budget-charged-before-emission",
        StreamHeldToItsEnd "stream-hangs-or-buffers",
        // Tags and channels.
        OneCallPerIncrement "many-calls-in-one-delta",
        OneTagPerIncrement "end-and-start-in-one-delta",
        ReasoningExcludesCalls "tool-parser-vs-reasoning-exclusive",
        HeldLessThanATag "holdback-shorter-than-tag",
        SplitAtTheLastTag "first-vs-last-close-tag",
        PromptTailIgnored "bare-close-tag",
        OpenerFoundAnywhere "text-before-open-tag",
        TagsRemovedById "markers-removed-before-parser",
        // Cancellation, liveness, leaks.
        WholeAnswersGoOn "disconnect-buffered-handler",
        LateAnswerAsserts "late-completion-for-removed-request",
        AbortNeedsBlocks "abort-before-first-schedule",
        AbortAfterFinish "abort-after-finish",
        GrammarErrorEndsAll "grammar-failure-kills-engine",
        RefusalOnlyLogged "matcher-refusal-hangs-stream",
        PreemptedIsBackAtOnce "preempt-requeue-front-livelock",
        FirstWithoutRoomEndsTheScan "blockless-head-strands-block-holders",
        LongerThanThePool "no-limit-preempt-cycle",
        // Preparation and defaults.
        EndTokensDropped "eos-list-dropped-in-conversion",
        OneEndToken "generation-config-ignored",
        GrammarKeyWithoutNumbers "compile-key-lacks-num-spec",
        HeadWithoutWeights "mtp-weights-not-in-package",
        StartTwiceInMessages "double-bos",
        StartTwiceInCompletions "double-bos-completions",
        ControlTokensSplit "special-tokens-split",
        DefaultsOverNeutral "sampling-defaults-from-model-surprise",
    }

    /// One more than the place of the fault that is on; 0 is none.
    static ON: AtomicU32 = AtomicU32::new(0);

    /// Whether it is on.
    pub fn is_on(fault: Planted) -> bool {
        ON.load(Ordering::Relaxed) == fault as u32 + 1
    }

    /// Switches one on, or all off, for the whole process, and says which was on before.
    pub fn set(fault: Option<Planted>) -> Option<Planted> {
        let next = fault.map_or(0, |fault| fault as u32 + 1);
        let before = ON.swap(next, Ordering::Relaxed);
        before
            .checked_sub(1)
            .and_then(|idx| Planted::ALL.get(idx as usize))
            .copied()
    }
}
