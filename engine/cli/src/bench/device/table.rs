//! The report for people. It must never state what the JSON does not.

use crate::terminal::Paint;
use serde_json::Value;

/// Writes a whole report.
pub fn print(report: &Value) {
    let paint = Paint::stdout();
    println!(
        "{}  q8, {:.1} MB and {:.1} M operations per token",
        paint.bold(text(&report["model"])),
        number(&report["bytes_per_step"]) / 1e6,
        number(&report["ops_per_token"]) / 1e6,
    );
    println!(
        "{} ({})   copies {:.1} GB/s (read and written), int8 {:.2} TOPS by {}",
        text(&report["device"]),
        text(&report["architecture"]),
        number(&report["copy_gb_per_second"]),
        number(&report["int8_tops"]),
        text(&report["int8_instruction"]),
    );
    if report["emulated"] == true {
        let warning = "an emulation on the host: these figures mean nothing";
        println!("{}", paint.yellow(warning));
    }
    let heads = "                 tokens/s    ms/step  of copies   of int8";
    println!("\n{}", paint.dim(heads));
    for row in rows(&report["decode"]) {
        println!(
            "decode x{:<6} {:>11.1} {:>10.3} {:>8.1} % {:>7.1} %",
            row["batch"],
            number(&row["tokens_per_second"]),
            number(&row["ms_per_step"]),
            number(&row["share_of_copy"]) * 100.0,
            number(&row["share_of_int8"]) * 100.0,
        );
    }
    let prefill = &report["prefill"];
    println!(
        "prefill        {:>11.1} {:>10} {:>10} {:>7.1} %   {:.2} TOPS",
        number(&prefill["tokens_per_second"]),
        "-",
        "-",
        number(&prefill["share_of_int8"]) * 100.0,
        number(&prefill["tops"]),
    );
    let heads = "products of all layers   exact ms    free ms   exact / free";
    println!("\n{}", paint.dim(heads));
    for row in rows(&report["exactness"]) {
        println!(
            "{:<6} tokens           {:>9.3} {:>10.3} {:>14.3}",
            row["tokens"],
            number(&row["exact_ms"]),
            number(&row["free_ms"]),
            number(&row["ratio"]),
        );
    }
}

fn rows(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(f64::NAN)
}
