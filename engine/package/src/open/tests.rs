//! Tests of whole packages: the fixtures and the embedded model open, and broken folders are
//! refused by name.
use super::*;
use crate::weights::tests::file;
use crate::{Architecture, LayerType, LinearConfig, NoProgress, Report, RopeScaling, TagFormat};
use serde_json::json;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/fixtures/models")
        .join(name)
}

fn open(path: &Path) -> Result<Package, PackageError> {
    Package::open(path, &NoProgress)
}

/// A copy of a fixture with one file replaced, or taken away.
struct Folder(tempfile::TempDir);

impl Folder {
    fn of(name: &str) -> Folder {
        let folder = tempfile::tempdir().expect("a folder");
        for file in ["config.json", "generation_config.json", "model.safetensors"] {
            std::fs::copy(fixture(name).join(file), folder.path().join(file)).expect("a fixture");
        }
        Folder(folder)
    }

    fn write(&self, name: &str, content: &[u8]) -> &Folder {
        std::fs::write(self.0.path().join(name), content).expect("a file");
        self
    }

    fn remove(&self, name: &str) -> &Folder {
        std::fs::remove_file(self.0.path().join(name)).expect("a file");
        self
    }

    fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.0.path().join(name)).expect("a file")
    }

    fn set(&self, file: &str, pointer: &str, value: Value) -> &Folder {
        let mut root: Value = serde_json::from_slice(&self.read(file)).expect("JSON");
        let (parent, field) = pointer.rsplit_once('/').expect("a pointer");
        root.pointer_mut(parent).expect("a parent")[field] = value;
        self.write(file, root.to_string().as_bytes())
    }

    fn open(&self) -> Result<Package, PackageError> {
        open(self.0.path())
    }

    fn refused(&self, expected: &str) {
        let message = self
            .open()
            .map(|package| package.config)
            .expect_err(expected)
            .to_string();
        assert!(message.contains(expected), "{message}, expected {expected}");
        assert!(
            message.contains(&*self.0.path().to_string_lossy()),
            "{message} names no file"
        );
    }
}

#[test]
fn fixtures_open_and_have_what_their_architecture_needs() {
    for name in ["llama", "llama3_rope", "qwen3", "qwen3_5"] {
        let package = open(&fixture(name)).expect(name);
        package.check_tensors().expect(name);
        let names = std::fs::read_to_string(fixture(name).join("names.txt")).expect("a fixture");
        let listed: Vec<&str> = names
            .lines()
            .filter_map(|line| line.split('\t').next())
            .collect();
        let found: Vec<&str> = package.tensors().map(|(name, _)| name).collect();
        assert_eq!(found, listed);
        let mut required = package.required_tensors();
        if package.has_mtp() {
            package.check_mtp_tensors().expect(name);
            required.extend(package.mtp_tensors());
        }
        assert_eq!(package.has_mtp(), name == "qwen3_5");
        let needed = |name: &str| required.iter().any(|tensor| tensor.name == name);
        let unused: Vec<&&str> = found.iter().filter(|name| !needed(name)).collect();
        assert_eq!(unused, Vec::<&&str>::new());
        assert_eq!(package.contract.end_tokens, [2]);
        let mut report = Report::of(&package).expect("readable");
        report.verify(&package, &NoProgress).expect("readable");
        assert_eq!(
            (report.problems.as_slice(), report.verified),
            (&[][..], true)
        );
    }
}

#[test]
fn settings_are_read_in_both_spellings() {
    let llama3 = open(&fixture("llama3_rope")).expect("a fixture").config;
    let scaling = RopeScaling::Llama3 {
        factor: 8.0,
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original_max_position_embeddings: 32,
    };
    assert_eq!(
        (llama3.rope.theta, llama3.rope.scaling),
        (500_000.0, scaling)
    );
    assert!(!llama3.tie_word_embeddings);
    let folder = Folder::of("llama3_rope");
    let inner = json!({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 32});
    folder.set("config.json", "/rope_parameters", Value::Null);
    folder
        .set("config.json", "/rope_theta", json!(500_000))
        .set("config.json", "/rope_scaling", inner);
    assert_eq!(folder.open().expect("the older spelling").config, llama3);
    folder.set(
        "config.json",
        "/rope_scaling",
        json!({"type": "linear", "factor": 2}),
    );
    let linear = folder
        .open()
        .expect("the oldest spelling")
        .config
        .rope
        .scaling;
    assert_eq!(linear, RopeScaling::Linear { factor: 2.0 });

    let qwen = open(&fixture("qwen3_5")).expect("a fixture").config;
    assert_eq!(qwen.architecture, Architecture::Qwen3_5);
    assert_eq!((qwen.head_dim, qwen.rotary_dim()), (32, 8));
    use LayerType::{FullAttention, LinearAttention};
    let layers = [
        LinearAttention,
        LinearAttention,
        LinearAttention,
        FullAttention,
    ];
    assert_eq!(qwen.layer_types, layers);
    let linear = LinearConfig {
        num_key_heads: 2,
        num_value_heads: 4,
        key_head_dim: 16,
        value_head_dim: 16,
        conv_kernel: 4,
    };
    assert_eq!(qwen.linear, Some(linear));
    let folder = Folder::of("qwen3_5");
    folder.set("config.json", "/layer_types", Value::Null);
    assert_eq!(
        folder.open().expect("every fourth is the default").config,
        qwen
    );
}

#[test]
fn the_multimodal_layout_is_read() {
    let folder = Folder::of("qwen3_5");
    let text: Value = serde_json::from_slice(&folder.read("config.json")).expect("JSON");
    let outer = json!({"architectures": ["Qwen3_5ForConditionalGeneration"], "model_type": "qwen3_5",
        "vision_config": {"hidden_act": "gelu"}, "text_config": text});
    folder.write("config.json", outer.to_string().as_bytes());
    let bytes = folder.read("model.safetensors");
    let length = u64::from_le_bytes(*bytes.first_chunk().expect("a length")) as usize;
    let header: Map<String, Value> =
        serde_json::from_slice(&bytes[8..8 + length]).expect("a header");
    let renamed: Map<String, Value> = header
        .into_iter()
        .map(|(name, value)| (name.replacen("model.", MULTIMODAL_PREFIX, 1), value))
        .collect();
    folder.write(
        "model.safetensors",
        &file(&Value::Object(renamed), &bytes[8 + length..]),
    );
    let package = folder.open().expect("the nested layout");
    package.check_tensors().expect("renamed throughout");
    assert_eq!(package.config.tensor_prefix, MULTIMODAL_PREFIX);
    folder.set("config.json", "/text_config/hidden_size", json!(-1));
    folder.refused("text_config.hidden_size is -1, expected a whole number from 1 to 65536");
}

#[test]
fn absurd_settings_are_refused_by_name() {
    let cases = [
        (
            "llama",
            "/model_type",
            json!("mamba"),
            "model_type is mamba, expected llama, qwen3, qwen3_5",
        ),
        ("llama", "/model_type", Value::Null, "model_type is absent"),
        (
            "llama",
            "/architectures",
            json!(["LlamaForSequenceClassification"]),
            "architectures is",
        ),
        (
            "llama",
            "/hidden_size",
            Value::Null,
            "hidden_size is absent",
        ),
        (
            "llama",
            "/hidden_size",
            json!("64"),
            "hidden_size is \"64\"",
        ),
        (
            "llama",
            "/hidden_size",
            json!(1e18),
            "expected a whole number",
        ),
        (
            "llama",
            "/num_hidden_layers",
            json!(0),
            "num_hidden_layers is 0",
        ),
        (
            "llama",
            "/num_hidden_layers",
            json!(1_000_000),
            "from 1 to 1024",
        ),
        (
            "llama",
            "/num_key_value_heads",
            json!(3),
            "a divisor of num_attention_heads, which is 4",
        ),
        (
            "llama",
            "/head_dim",
            json!(15),
            "head_dim is 15, expected an even number",
        ),
        ("llama", "/rms_norm_eps", json!(-1), "rms_norm_eps is -1"),
        (
            "llama",
            "/hidden_act",
            json!("gelu"),
            "hidden_act is \"gelu\", expected silu",
        ),
        (
            "llama",
            "/attention_bias",
            json!(true),
            "attention_bias is true",
        ),
        ("llama", "/mlp_bias", json!(true), "mlp_bias is true"),
        (
            "llama",
            "/tie_word_embeddings",
            json!(3),
            "tie_word_embeddings is 3, expected true or false",
        ),
        (
            "llama",
            "/rope_parameters",
            json!(1),
            "rope_parameters is 1, expected an object",
        ),
        (
            "llama",
            "/rope_parameters/rope_type",
            json!("yarn"),
            "rope_type is yarn, expected default",
        ),
        (
            "llama",
            "/rope_parameters/rope_theta",
            json!(0),
            "rope_parameters.rope_theta is 0",
        ),
        (
            "llama3_rope",
            "/rope_parameters/factor",
            Value::Null,
            "factor is absent",
        ),
        (
            "llama3_rope",
            "/rope_parameters/high_freq_factor",
            json!(0.5),
            "more than low_freq_factor",
        ),
        (
            "llama",
            "/quantization_config",
            json!({"quant_method": "awq"}),
            "quantization_config is",
        ),
        ("qwen3", "/use_sliding_window", json!(true), ""),
        (
            "qwen3",
            "/layer_types",
            json!(["full_attention"]),
            "an array of 3",
        ),
        (
            "qwen3",
            "/layer_types/1",
            json!("linear_attention"),
            "layer_types[1] is",
        ),
        (
            "qwen3_5",
            "/layer_types/0",
            json!("sliding_attention"),
            "full_attention or linear_attention",
        ),
        (
            "qwen3_5",
            "/linear_num_key_heads",
            Value::Null,
            "linear_num_key_heads is absent",
        ),
        (
            "qwen3_5",
            "/linear_num_value_heads",
            json!(3),
            "a multiple of linear_num_key_heads, 2",
        ),
        (
            "qwen3_5",
            "/attn_output_gate",
            json!(false),
            "attn_output_gate is false",
        ),
        (
            "qwen3_5",
            "/rope_parameters/partial_rotary_factor",
            json!(0.1),
            "an even number of rotating",
        ),
    ];
    for (name, pointer, value, expected) in cases {
        let folder = Folder::of(name);
        if let Some((parent, index)) = pointer
            .rsplit_once('/')
            .filter(|(_, i)| i.parse::<usize>().is_ok())
        {
            let mut root: Value =
                serde_json::from_slice(&folder.read("config.json")).expect("JSON");
            root.pointer_mut(parent).expect("an array")[index.parse::<usize>().unwrap_or(0)] =
                value;
            folder.write("config.json", root.to_string().as_bytes());
        } else {
            folder.set("config.json", pointer, value);
        }
        match expected {
            // Without a window there is nothing to slide.
            "" => assert!(folder.open().is_ok()),
            expected => folder.refused(expected),
        }
    }
    let folder = Folder::of("qwen3");
    folder.set("config.json", "/use_sliding_window", json!(true));
    folder
        .set("config.json", "/sliding_window", json!(4096))
        .refused("sliding_window is 4096");
    Folder::of("llama")
        .write("config.json", b"{\"a\":")
        .refused("not the JSON that it should be");
    Folder::of("llama")
        .write("config.json", b"[1]")
        .refused("an array of 1 where an object");
    Folder::of("llama")
        .write("config.json", b"\xff\xfe")
        .refused("config.json");
}

#[test]
fn absurd_generation_settings_are_refused_by_name() {
    let cases = [
        (
            "/eos_token_id",
            json!(256),
            "eos_token_id is 256, expected token ids below vocab_size, 256",
        ),
        ("/eos_token_id", json!([2, -1]), "eos_token_id is -1"),
        ("/temperature", json!("hot"), "temperature is \"hot\""),
        ("/top_p", json!(1.5), "top_p is 1.5"),
        ("/top_k", json!(2.5), "top_k is 2.5"),
        (
            "/do_sample",
            json!(1),
            "do_sample is 1, expected true or false",
        ),
    ];
    for (pointer, value, expected) in cases {
        Folder::of("llama")
            .set("generation_config.json", pointer, value)
            .refused(expected);
    }
    let folder = Folder::of("llama");
    folder.set("generation_config.json", "/top_k", json!(-1));
    folder.set("generation_config.json", "/temperature", json!(0.6));
    let sampling = folder.open().expect("sound").contract.sampling;
    assert_eq!((sampling.temperature, sampling.top_k), (0.6, 0));
    folder.set("generation_config.json", "/do_sample", json!(false));
    assert_eq!(
        folder.open().expect("sound").contract.sampling.temperature,
        0.0
    );
    // Without generation settings, those of the model's configuration hold.
    folder
        .remove("generation_config.json")
        .set("config.json", "/eos_token_id", json!([7, 3, 7]));
    assert_eq!(folder.open().expect("sound").contract.end_tokens, [3, 7]);
}

#[test]
fn missing_and_broken_files_are_named() {
    let missing = open(Path::new("/nowhere/at/all"))
        .map(|p| p.name)
        .expect_err("no folder");
    assert!(
        missing
            .to_string()
            .contains("/nowhere/at/all: no folder with config.json")
    );
    Folder::of("llama")
        .remove("config.json")
        .refused("no config.json there");
    Folder::of("llama")
        .remove("model.safetensors")
        .refused("no model.safetensors or");
    Folder::of("llama")
        .write("model.safetensors", b"")
        .refused("the file is empty");
    let folder = Folder::of("llama");
    let bytes = folder.read("model.safetensors");
    folder
        .write("model.safetensors", &bytes[..bytes.len() / 2])
        .refused("bytes of data");
    Folder::of("llama")
        .write("tokenizer.json", b"{}")
        .refused("tokenizer");
    Folder::of("llama")
        .write("chat_template.jinja", b"{% if %}")
        .refused("chat template, line 1");
    Folder::of("llama")
        .write("chat_template.jinja", b"\xff")
        .refused("not UTF-8");
    let bad = br#"{"chat_template": [{"name": "default"}]}"#;
    Folder::of("llama")
        .write("tokenizer_config.json", bad)
        .refused("name and template");
    let tokenizer = crate::embedded::file("tokenizer.json").expect("embedded");
    Folder::of("llama")
        .write("tokenizer.json", tokenizer)
        .refused("token ids go up to 2047");
}

#[test]
fn tensors_that_are_missing_or_wrong_are_named() {
    let folder = Folder::of("llama");
    folder.set("config.json", "/intermediate_size", json!(129));
    let message = folder
        .open()
        .and_then(|p| p.check_tensors())
        .expect_err("127")
        .to_string();
    let expected =
        "tensor model.layers.0.mlp.gate_proj.weight is of shape [128, 64], expected [129, 64]";
    assert!(message.contains(expected), "{message}");
    folder.set("config.json", "/intermediate_size", json!(128));
    folder.set("config.json", "/num_hidden_layers", json!(4));
    let package = folder.open().expect("sound but for its layers");
    let message = package
        .check_tensors()
        .expect_err("three layers")
        .to_string();
    let expected = "tensor model.layers.3.input_layernorm.weight is in no file of the package, \
                    expected shape [64]";
    assert_eq!(message, expected);
    let report = Report::of(&package).expect("readable");
    assert_eq!(
        report.problems.len(),
        9,
        "each missing tensor is listed: {:?}",
        report.problems
    );
}

#[test]
fn a_bad_weight_is_found_by_verification() {
    let folder = Folder::of("llama");
    let mut bytes = folder.read("model.safetensors");
    let end = bytes.len();
    bytes[end - 4..].copy_from_slice(&f32::NAN.to_le_bytes());
    folder.write("model.safetensors", &bytes);
    let package = folder.open().expect("values aren't read yet");
    let mut report = Report::of(&package).expect("readable");
    assert!(report.problems.is_empty());
    report.verify(&package, &NoProgress).expect("readable");
    let problem = report.problems.first().cloned().unwrap_or_default();
    assert!(problem.contains("holds NaN at index"), "{problem}");
}

#[test]
fn shards_are_joined_by_their_index() {
    let folder = Folder::of("llama");
    let bytes = folder.read("model.safetensors");
    folder
        .write("model-00001-of-00001.safetensors", &bytes)
        .remove("model.safetensors");
    let package = open(&fixture("llama")).expect("a fixture");
    let map: Map<String, Value> = package
        .tensors()
        .map(|(name, _)| (name.to_string(), json!("model-00001-of-00001.safetensors")))
        .collect();
    let index = |map: &Map<String, Value>| json!({"weight_map": map}).to_string().into_bytes();
    folder.write("model.safetensors.index.json", &index(&map));
    let sharded = folder.open().expect("one shard");
    let name = "model.norm.weight";
    let values = |p: &Package| p.tensor(name).and_then(|view| view.to_f32());
    assert_eq!(values(&sharded), values(&package));

    let with = |tensor: &str, file: Value| {
        let mut map = map.clone();
        map.insert(tensor.to_string(), file);
        folder.write("model.safetensors.index.json", &index(&map));
    };
    with("extra", json!("model-00001-of-00001.safetensors"));
    folder.refused("tensor extra is in no file");
    with(name, json!("model-00002-of-00002.safetensors"));
    folder.refused("model-00002-of-00002.safetensors");
    for file in [
        json!("../model.safetensors"),
        json!("/etc/passwd"),
        json!(3),
        json!("a.bin"),
    ] {
        with(name, file);
        folder.refused("expected the plain name of a .safetensors file");
    }
    folder.write("model-00002-of-00002.safetensors", &bytes);
    with(name, json!("model-00002-of-00002.safetensors"));
    folder.refused("expected it only once");
    folder
        .write("model.safetensors.index.json", b"{}")
        .refused("weight_map is absent");
}

#[test]
fn the_embedded_package_is_sound() {
    let package = Package::embedded().expect("it is part of the program");
    package.check_tensors().expect("all there");
    let contract = &package.contract;
    assert_eq!(contract.end_tokens, [0, 4, 6]);
    assert_eq!(contract.tag_format, Some(TagFormat::Glm));
    assert_eq!(
        contract.reasoning.map(|tags| (tags.open, tags.close)),
        Some((7, 8))
    );
    assert_eq!(contract.sampling.temperature, 0.0);
    let mut report = Report::of(&package).expect("readable");
    report.verify(&package, &NoProgress).expect("readable");
    assert_eq!(report.problems, Vec::<String>::new());
    assert_eq!(report.parameters, 4_055_920);
    assert_eq!(report.mtp_parameters, 529_472);
    assert_eq!(report.unused().count(), 0);
    let address = package.weights.files()[0].bytes().as_ptr().addr();
    assert!(
        address.is_multiple_of(64),
        "the file begins at {address:#x}"
    );
}

#[test]
fn named_templates_and_token_objects_are_read() {
    let folder = Folder::of("llama");
    let settings = json!({"bos_token": {"content": "<s>"}, "eos_token": "</s>", "chat_template": [
        {"name": "default", "template": "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}"},
        {"name": "rag", "template": "unused"}]});
    folder.write("tokenizer_config.json", settings.to_string().as_bytes());
    let package = folder.open().expect("sound");
    let template = package.template.as_ref().expect("a template");
    let messages = [json!({"role": "user", "content": "hi"})];
    let rendered = template
        .render(&messages, None, &Map::new(), false)
        .expect("renders");
    assert_eq!(rendered.text(), "<s>hi</s>");
    let error = package
        .encode_chat(&messages, None, &Map::new(), false)
        .expect_err("no tokenizer");
    assert!(
        error.to_string().contains("tokenizer.json isn't there"),
        "{error}"
    );
    folder.write("tokenizer_config.json", b"{}");
    let package = folder.open().expect("sound");
    let error = package
        .encode_chat(&messages, None, &Map::new(), false)
        .expect_err("no template");
    assert!(
        error.to_string().contains("has no chat template"),
        "{error}"
    );
}
