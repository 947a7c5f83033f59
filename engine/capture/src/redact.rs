//! Leaves text, or tokens as well, out of records. What is left still tells whether things agree: text becomes its
//! length and a digest. Where tokens are left out, those of prompts and answers become keyed digests of themselves and
//! of all before them, so that equal tokens of different texts don't look alike, and the digests of text are keyed too.
//!
//! It must never let through what it was told to leave out: each kind of record is taken apart here by name.

use crate::checksum::mix;
use crate::record::{
    ConstraintRecord, EventRecord, FinishRecord, News, Record, Redaction, RequestRecord, Text, Why,
};
use lockstep_step::{
    Digest, Logprobs, QueryToken, SamplingParams, SeqId, StepOutput, StepPlan, TokenId,
};
use std::collections::BTreeMap;

/// Leaves out what it was told to.
pub struct Redactor {
    redaction: Redaction,
    key: u64,
    /// With tokens left out: the digests of the prefixes of each sequence, by length.
    prefixes: BTreeMap<SeqId, Vec<u64>>,
}

impl Redactor {
    /// One with a key of its own.
    pub fn new(redaction: Redaction, key: u64) -> Redactor {
        Redactor {
            redaction,
            key: mix(key ^ 0x7265_6461_6374),
            prefixes: BTreeMap::new(),
        }
    }

    /// Leaves out of a record what has to be.
    pub fn redact(&mut self, record: &mut Record) {
        if self.redaction == Redaction::None {
            return;
        }
        let tokens = self.redaction == Redaction::Tokens;
        match record {
            Record::Request(request) => self.request(request, tokens),
            Record::Event(event) => self.event(event, tokens),
            Record::Stream(stream) => self.hide(&mut stream.bytes),
            Record::Plan(plan) if tokens => plan_only(plan),
            Record::Output(_, Ok(output)) if tokens => digests_only(output),
            Record::Proposals(_, plan, proposals) if tokens => {
                for own in &mut plan.seqs {
                    own.query.clear();
                    own.counts.clear();
                    own.sampling = blind(&own.sampling);
                }
                for proposal in proposals {
                    proposal.tokens.fill(TokenId(0));
                }
            }
            // That of an embedding tells the token.
            Record::Ops(_, ops) if tokens => ops.clear(),
            // What failed can have text in its words.
            Record::Output(_, Err(words)) => *words = "left out".to_string(),
            Record::Left(seq) => {
                self.prefixes.remove(seq);
            }
            Record::Plan(_)
            | Record::Output(..)
            | Record::Proposals(..)
            | Record::Masks(..)
            | Record::Ops(..)
            | Record::End(_)
            | Record::Lost(_) => {}
        }
    }

    fn hide(&self, text: &mut Text) {
        let (len, digest) = text.digest();
        *text = match self.redaction {
            Redaction::Tokens => Text::Digest(len, Digest(mix(self.key ^ digest.0))),
            Redaction::None | Redaction::Text => Text::Digest(len, digest),
        };
    }

    fn request(&mut self, request: &mut RequestRecord, tokens: bool) {
        request.stop_strings.clear();
        request.tags.tools.clear();
        let salt = crate::checksum::digest(request.cache_salt.as_bytes());
        request.cache_salt = format!("{:016x}", mix(self.key ^ salt.0));
        if request.constraint != ConstraintRecord::None {
            request.constraint = ConstraintRecord::Unknown;
        }
        if !tokens {
            return;
        }
        let mut prefixes = vec![mix(self.key)];
        for token in &mut request.prompt {
            *token = follow(&mut prefixes, *token);
        }
        self.prefixes.insert(request.seq, prefixes);
        request.end_tokens.clear();
        request.sampling = blind(&request.sampling);
        if let Some((_, close)) = &mut request.reasoning {
            close.clear();
        }
    }

    fn event(&mut self, event: &mut EventRecord, tokens: bool) {
        match &mut event.news {
            News::Token {
                token,
                bytes,
                logprobs,
                ..
            } => {
                self.hide(bytes);
                if tokens {
                    if let Some(prefixes) = self.prefixes.get_mut(&event.seq) {
                        *token = follow(prefixes, *token);
                    }
                    logprobs.iter_mut().for_each(without_tokens);
                }
            }
            News::Dropped(token) if tokens => *token = TokenId(0),
            News::Reasoning(text) | News::Content(text) => self.hide(text),
            News::CallBegin(_, text) | News::CallArguments(_, text) => self.hide(text),
            News::Finished(FinishRecord {
                why, dropped_call, ..
            }) => {
                dropped_call.iter_mut().for_each(|text| self.hide(text));
                match why {
                    Why::StopString(text) | Why::Error(_, text) => self.hide(text),
                    Why::EndToken(token) if tokens => *token = TokenId(0),
                    Why::EndToken(_) | Why::Length | Why::ToolCalls | Why::Aborted => {}
                }
                self.prefixes.remove(&event.seq);
            }
            News::Scheduled | News::Preempted | News::Dropped(_) | News::CallEnd(_) => {}
        }
    }
}

/// A plan without its tokens: what is left says which blocks and rows it names, and where it begins.
fn plan_only(plan: &mut StepPlan) {
    for part in &mut plan.seqs {
        part.counts.clear();
        part.sampling = blind(&part.sampling);
        for token in &mut part.query {
            if let QueryToken::Known(token) = token {
                *token = TokenId(0);
            }
        }
    }
}

fn digests_only(output: &mut StepOutput) {
    for own in &mut output.seqs {
        for draw in own.draws.iter_mut().flatten() {
            draw.token = TokenId(0);
            draw.logprobs.iter_mut().for_each(without_tokens);
        }
    }
}

/// The id that stands for a token after these; the prefixes grow by it.
fn follow(prefixes: &mut Vec<u64>, token: TokenId) -> TokenId {
    let last = prefixes[prefixes.len() - 1];
    let next = mix(last ^ u64::from(token.0) << 8 ^ 0xff);
    prefixes.push(next);
    TokenId((next >> 32) as u32)
}

fn without_tokens(logprobs: &mut Logprobs) {
    logprobs.top.clear();
}

fn blind(sampling: &SamplingParams) -> SamplingParams {
    SamplingParams {
        bias: Vec::new(),
        seed: 0,
        ..sampling.clone()
    }
}
