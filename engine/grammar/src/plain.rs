//! `llguidance` as it comes: one grammar over the whole output, and the slices that it recommends. Nothing
//! is served with it. It is what a benchmark measures beside [`Boundary`](crate::Boundary).

use crate::session::Session;
use crate::vocabulary::GrammarVocabulary;
use llguidance::{ParserFactory, api::TopLevelGrammar, earley::SlicedBiasComputer};
use lockstep_step::{Bitmask, Matcher, MatcherError, TokenId};
use toktrie::InferenceCapabilities;

/// What parsers are made by, as its authors recommend.
pub(crate) fn plain_factory(vocabulary: &GrammarVocabulary) -> Result<ParserFactory, String> {
    let env = vocabulary.factory().tok_env();
    let slices = SlicedBiasComputer::general_slices();
    let factory = ParserFactory::new(env, InferenceCapabilities::default(), &slices);
    let mut factory = factory.map_err(|error| error.to_string())?;
    factory.quiet();
    Ok(factory)
}

/// One output under one grammar.
pub struct PlainMatcher {
    session: Session,
    depth: u32,
}

impl PlainMatcher {
    pub(crate) fn new(factory: &ParserFactory, text: String) -> Result<PlainMatcher, String> {
        let parser = factory.create_parser(TopLevelGrammar::from_lark(text));
        let matcher = llguidance::Matcher::new(Ok(parser.map_err(|error| error.to_string())?));
        Ok(PlainMatcher {
            session: Session::over(matcher),
            depth: 0,
        })
    }
}

impl Matcher for PlainMatcher {
    fn fill(&mut self, mask: &mut Bitmask) -> Result<(), MatcherError> {
        self.session.fill(mask)
    }

    fn consume(&mut self, token: TokenId) -> Result<(), MatcherError> {
        self.session.consume(token)?;
        self.depth += 1;
        Ok(())
    }

    fn rollback(&mut self, num_tokens: u32) {
        for _ in 0..num_tokens {
            let taken_back = self.session.rollback();
            assert!(taken_back.is_ok(), "{taken_back:?}");
        }
        self.depth -= num_tokens;
    }

    fn depth(&self) -> u32 {
        self.depth
    }

    fn can_finish(&self) -> bool {
        false
    }
}
