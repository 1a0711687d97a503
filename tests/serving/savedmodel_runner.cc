// Runs one signature of a SavedModel as TensorFlow Serving does: no Python, and no XLA.
//
//   savedmodel_runner DIRECTORY [--signature=NAME] [--op_library=FILE]... < inputs > outputs
//
// Inputs and outputs are words between white space, each tensor is
//
//   NAME RANK SIZE... VALUE...           as an input, its dtype being that of the signature, and
//   NAME DTYPE RANK SIZE... VALUE...     as an output,
//
// SIZE being one word for each axis. A string is its bytes in hexadecimal after an "x", which
// makes the empty one a word and keeps every byte: "x610a62". Floats have nine digits, which is
// exact for float32; "inf" and "nan" are written so. The exit code is the stage that failed.

#include <charconv>
#include <cstdint>
#include <iomanip>
#include <iostream>
#include <map>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "tensorflow/c/c_api.h"
#include "tensorflow/cc/saved_model/loader.h"
#include "tensorflow/compiler/jit/flags.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/public/session_options.h"

using tensorflow::DataType;
using tensorflow::SignatureDef;
using tensorflow::Tensor;
using tensorflow::tstring;

enum Stage { kUsage = 2, kOpLibrary = 3, kLoad = 4, kSignature = 5, kRun = 6 };

struct Failure {
  Stage stage;
  std::string message;
};

struct Arguments {
  std::string directory, signature = "serving_default";
  std::vector<std::string> op_libraries;
};

void Check(const absl::Status& status, Stage stage) {
  if (!status.ok()) throw Failure{stage, status.ToString()};
}

Arguments ReadArguments(int argc, char** argv) {
  const std::string signature = "--signature=", op_library = "--op_library=";
  Arguments arguments;
  for (const std::string word : std::vector<std::string>(argv + 1, argv + argc)) {
    if (word.compare(0, signature.size(), signature) == 0) {
      arguments.signature = word.substr(signature.size());
    } else if (word.compare(0, op_library.size(), op_library) == 0) {
      arguments.op_libraries.push_back(word.substr(op_library.size()));
    } else if (arguments.directory.empty() && word.compare(0, 2, "--") != 0) {
      arguments.directory = word;
    } else {
      throw Failure{kUsage, "not understood: " + word};
    }
  }
  if (arguments.directory.empty()) throw Failure{kUsage, "which directory?"};
  return arguments;
}

void LoadOpLibrary(const std::string& file) {
  TF_Status* status = TF_NewStatus();
  TF_LoadLibrary(file.c_str(), status);
  const std::string message = TF_Message(status);
  const bool loaded = TF_GetCode(status) == TF_OK;
  TF_DeleteStatus(status);
  if (!loaded) throw Failure{kOpLibrary, message};
}

// Calls `visit` with a value of the C++ type of `dtype`.
template <typename Visitor>
void WithTypeOf(DataType dtype, Visitor visit) {
  if (dtype == tensorflow::DT_STRING) return visit(tstring());
  if (dtype == tensorflow::DT_FLOAT) return visit(float());
  if (dtype == tensorflow::DT_INT32) return visit(int32_t());
  if (dtype == tensorflow::DT_BOOL) return visit(bool());
  throw Failure{kSignature, "no string, float, int32 or bool: " + DataTypeString(dtype)};
}

template <typename Number>
void Parse(const std::string& word, Number& value) {
  const char* end = word.data() + word.size();
  const auto result = std::from_chars(word.data(), end, value);
  if (result.ec != std::errc() || result.ptr != end) {
    throw Failure{kSignature, "no such number: " + word};
  }
}

void Parse(const std::string& word, bool& value) {
  int32_t number;
  Parse(word, number);
  value = number != 0;
}

void Parse(const std::string& word, tstring& bytes) {
  if (word[0] != 'x' || word.size() % 2 == 0) throw Failure{kSignature, "no string: " + word};
  for (size_t i = 1; i < word.size(); i += 2) {
    int byte;
    const auto result = std::from_chars(&word[i], &word[i] + 2, byte, 16);
    if (result.ptr != &word[i] + 2) throw Failure{kSignature, "no string: " + word};
    bytes.push_back(static_cast<char>(byte));
  }
}

template <typename Value>
Value Read() {
  std::string word;
  if (!(std::cin >> word)) throw Failure{kSignature, "the inputs end within a tensor"};
  Value value{};
  Parse(word, value);
  return value;
}

Tensor ReadTensor(DataType dtype) {
  tensorflow::TensorShape shape;
  for (int axes = Read<int32_t>(); axes > 0; --axes) {
    Check(shape.AddDimWithStatus(Read<int32_t>()), kSignature);
  }
  Tensor tensor(dtype, shape);
  WithTypeOf(dtype, [&](auto type) {
    auto values = tensor.flat<decltype(type)>();
    for (int64_t i = 0; i < values.size(); ++i) values(i) = Read<decltype(type)>();
  });
  return tensor;
}

std::vector<std::pair<std::string, Tensor>> ReadInputs(const SignatureDef& signature) {
  std::map<std::string, Tensor> inputs;
  for (std::string name; std::cin >> name;) {
    const auto found = signature.inputs().find(name);
    if (found == signature.inputs().end()) throw Failure{kSignature, "no input " + name};
    inputs[found->second.name()] = ReadTensor(found->second.dtype());
  }
  for (const auto& [name, info] : signature.inputs()) {
    if (!inputs.count(info.name())) throw Failure{kSignature, "missing input " + name};
  }
  return {inputs.begin(), inputs.end()};
}

void Write(float value) { std::cout << ' ' << std::setprecision(9) << value; }

void Write(int32_t value) { std::cout << ' ' << value; }

void Write(bool value) { std::cout << (value ? " 1" : " 0"); }

void Write(const tstring& bytes) {
  const char digits[] = "0123456789abcdef";
  std::cout << " x";
  for (const unsigned char byte : bytes) std::cout << digits[byte >> 4] << digits[byte & 15];
}

void WriteTensor(const std::string& name, const Tensor& tensor) {
  std::cout << name << ' ' << DataTypeString(tensor.dtype()) << ' ' << tensor.dims();
  for (int axis = 0; axis < tensor.dims(); ++axis) std::cout << ' ' << tensor.dim_size(axis);
  WithTypeOf(tensor.dtype(), [&](auto type) {
    auto values = tensor.flat<decltype(type)>();
    for (int64_t i = 0; i < values.size(); ++i) Write(values(i));
  });
  std::cout << '\n';
}

void Run(const Arguments& arguments) {
  tensorflow::DisableXlaCompilation();  // As TensorFlow Serving's main function does.
  for (const std::string& file : arguments.op_libraries) LoadOpLibrary(file);
  tensorflow::SavedModelBundle bundle;
  Check(tensorflow::LoadSavedModel({}, {}, arguments.directory, {"serve"}, &bundle), kLoad);
  const auto& signatures = bundle.meta_graph_def.signature_def();
  const auto found = signatures.find(arguments.signature);
  if (found == signatures.end()) throw Failure{kSignature, "no signature of this name"};

  std::vector<std::string> names, nodes;
  for (const auto& [name, info] : found->second.outputs()) {
    names.push_back(name);
    nodes.push_back(info.name());
  }
  std::vector<Tensor> outputs;
  Check(bundle.session->Run(ReadInputs(found->second), nodes, {}, &outputs), kRun);
  for (size_t i = 0; i < names.size(); ++i) WriteTensor(names[i], outputs[i]);
}

int main(int argc, char** argv) {
  try {
    Run(ReadArguments(argc, argv));
  } catch (const Failure& failure) {
    std::cerr << failure.message << '\n';
    return failure.stage;
  }
}
