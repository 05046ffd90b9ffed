#include "layers/transformer.h"

#include <ATen/ATen.h>
#include <ATen/OpMathType.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "ops/ops.h"

namespace sdp {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

class RmsNorm : public torch::autograd::Function<RmsNorm> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            double eps) {
    const auto [y, scale] = ops::rms_norm(x, weight, eps);
    context->save_for_backward({x, weight, scale});
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &scale = saved[2];
    const auto [dx, dweight] = ops::rms_norm_backward(gradients[0], x, weight, scale, weight.requires_grad());
    return {dx, dweight, at::Tensor()};
  }
};

class Linears : public torch::autograd::Function<Linears> {
 public:
  static variable_list forward(AutogradContext* context, const at::Tensor& x, at::TensorList weights) {
    const bool trains = std::ranges::any_of(weights, [](const at::Tensor& w) { return w.requires_grad(); });
    variable_list saved{trains ? x : at::Tensor()};
    variable_list results;
    for (const at::Tensor& weight : weights) {
      saved.push_back(weight);
      results.push_back(at::linear(x, weight));
    }
    context->save_for_backward(saved);
    return results;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& x = saved.front();
    const at::Tensor rows = x.defined() ? x.flatten(0, -2) : x;  // [rows, W]
    variable_list result(saved.size());
    at::Tensor dx;
    for (size_t i = 0; i < gradients.size(); ++i) {
      const at::Tensor gradient = gradients[i].flatten(0, -2);  // [rows, H_i]
      const at::Tensor& weight = saved[i + 1];
      if (weight.requires_grad()) result[i + 1] = gradient.t().mm(rows);
      if (!context->needs_input_grad(0)) continue;
      if (dx.defined())
        dx.addmm_(gradient, weight);
      else
        dx = gradient.mm(weight);
    }
    if (dx.defined()) {
      std::vector<int64_t> shape = gradients.front().sizes().vec();
      shape.back() = dx.size(1);
      result.front() = dx.view(shape);
    }
    return result;
  }
};

class SwiGlu : public torch::autograd::Function<SwiGlu> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& gate, const at::Tensor& up) {
    context->save_for_backward({gate, up});
    return ops::swiglu(gate, up);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const auto [dgate, dup] = ops::swiglu_backward(gradients[0], saved[0], saved[1]);
    return {dgate, dup};
  }
};

class Rotate : public torch::autograd::Function<Rotate> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& cos,
                            const at::Tensor& sin) {
    context->save_for_backward({cos, sin});
    return ops::rotate(x, cos, sin, /*inverse=*/false);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    return {ops::rotate(gradients[0], saved[0], saved[1], /*inverse=*/true), at::Tensor(), at::Tensor()};
  }
};

/// Allows cuDNN's attention during a scope, on a GPU the fastest where there is no mask. It is off elsewhere
/// because of masks (prepare_device in engine/device.h). Its backward pass is not deterministic.
class WithCudnnAttention {
 public:
  WithCudnnAttention() : was_allowed_(at::globalContext().userEnabledCuDNNSDP()) {
    at::globalContext().setSDPUseCuDNN(!at::globalContext().deterministicAlgorithms());
  }
  ~WithCudnnAttention() { at::globalContext().setSDPUseCuDNN(was_allowed_); }
  WithCudnnAttention(const WithCudnnAttention&) = delete;
  WithCudnnAttention& operator=(const WithCudnnAttention&) = delete;

 private:
  const bool was_allowed_;
};

}  // namespace

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  return RmsNorm::apply(x, weight, eps);
}

std::vector<at::Tensor> linears(const at::Tensor& x, at::TensorList weights) {
  return Linears::apply(x, weights);
}

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) {
  return SwiGlu::apply(gate, up);
}

at::Tensor rotary_frequencies(int64_t head_size, double theta, const at::Tensor& like) {
  const at::TensorOptions options = like.options().dtype(at::toOpMathType(like.scalar_type()));
  const at::Tensor exponent = at::arange(0, head_size, 2, options) / static_cast<double>(head_size);
  return at::pow(theta, exponent).reciprocal();
}

RotaryTable rotary_table(int64_t tokens, const at::Tensor& frequencies) {
  const at::Tensor positions = at::arange(tokens, frequencies.options());
  const at::Tensor angle = at::outer(positions, frequencies).unsqueeze(1);  // [T, 1, D / 2]
  return {.cos = angle.cos(), .sin = angle.sin()};
}

at::Tensor rotate(const at::Tensor& x, const RotaryTable& table) {
  return Rotate::apply(x, table.cos, table.sin);
}

at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool is_causal) {
  const WithCudnnAttention allowed;
  const int64_t times = q.size(2) / k.size(2);
  // Of the fused kernels, only flash attention supports grouped queries: on CUDA, in 16-bit types.
  const bool shares_heads = q.is_cuda() && q.scalar_type() == at::kBFloat16;
  const auto of_all_heads = [&](const at::Tensor& x) {
    return (times == 1 || shares_heads ? x : x.repeat_interleave(times, /*dim=*/2)).transpose(1, 2);
  };
  const at::Tensor heads =  // [B, N, T, D]
      q.is_cuda() ? at::scaled_dot_product_attention(q.transpose(1, 2), of_all_heads(k), of_all_heads(v),
                                                     /*attn_mask=*/{}, /*dropout_p=*/0, is_causal,
                                                     /*scale=*/{}, /*enable_gqa=*/times > 1 && shares_heads)
                  : std::get<0>(at::_scaled_dot_product_flash_attention_for_cpu(
                        q.transpose(1, 2), of_all_heads(k), of_all_heads(v), /*dropout_p=*/0, is_causal));
  return heads.transpose(1, 2).flatten(2);
}

}  // namespace sdp
