#include "fixtures.h"

#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include <jpeglib.h>

namespace sdp::testing {

TarWriter& TarWriter::add(const std::string& name, const std::string& data, char type,
                          const std::string& target) {
  std::string header(512, '\0');
  const auto put = [&](size_t at, const std::string& text) { header.replace(at, text.size(), text); };
  char octal[16];
  put(0, name);
  put(100, "0000644");
  put(108, "0000000");
  put(116, "0000000");
  std::snprintf(octal, sizeof octal, "%011zo", data.size());
  put(124, octal);
  put(136, "00000000000");
  put(148, "        ");
  header[156] = type;
  put(157, target);
  put(257, "ustar");
  put(263, "00");
  unsigned sum = 0;
  for (const char byte : header)
    sum += static_cast<unsigned char>(byte);
  std::snprintf(octal, sizeof octal, "%06o", sum);
  put(148, octal);
  header[154] = '\0';

  bytes_ += header + data;
  bytes_.resize((bytes_.size() + 511) / 512 * 512, '\0');
  return *this;
}

std::string tar_of(const std::vector<TarMember>& members) {
  TarWriter tar;
  for (const auto& [name, data, type, target] : members)
    tar.add(name, data, type, target);
  return tar.finish();
}

namespace {

void put(std::string& bytes, uint32_t value, int size) {
  for (int byte = 0; byte < size; ++byte)
    bytes += static_cast<char>(value >> (8 * byte) & 0xff);
}

}  // namespace

std::string safetensors_bytes(const std::string& header, const std::string& data) {
  std::string bytes;
  put(bytes, static_cast<uint32_t>(header.size()), 4);
  put(bytes, 0, 4);
  return bytes + header + data;
}

std::string array_file(const HeldImages& set, const ArrayContent& content) {
  using nlohmann::json;
  const size_t pixels = content.pixels.size(), images = content.labels.size();
  const auto tensor = [](const json& shape, size_t begin, size_t end) {
    return json{{"dtype", "U8"}, {"shape", shape}, {"data_offsets", json::array({begin, end})}};
  };
  const json header = {
      {"__metadata__", {{"class_names", json(set.class_names).dump()}}},
      {"images",
       tensor(json::array({images, set.shape.height, set.shape.width, set.shape.channels}), 0, pixels)},
      {"labels", tensor(json::array({images}), pixels, pixels + images)}};
  return safetensors_bytes(header.dump(), content.pixels + content.labels);
}

std::string token_header(uint32_t stated, int32_t magic, int32_t version) {
  std::string bytes;
  for (const uint32_t word : {static_cast<uint32_t>(magic), static_cast<uint32_t>(version), stated})
    put(bytes, word, 4);
  bytes.resize(1024, '\0');
  return bytes;
}

std::string token_shard(const std::vector<uint16_t>& tokens, std::optional<int32_t> stated, int32_t magic,
                        int32_t version) {
  std::string bytes = token_header(static_cast<uint32_t>(stated.value_or(tokens.size())), magic, version);
  for (const uint16_t token : tokens)
    put(bytes, token, 2);
  return bytes;
}

std::string wide_token_shard(const std::vector<uint32_t>& tokens) {
  std::string bytes = token_header(static_cast<uint32_t>(tokens.size()), 20240801, 7);
  for (const uint32_t token : tokens)
    put(bytes, token, 4);
  return bytes;
}

DataSpec tokens_in(const std::filesystem::path& folder, int64_t sequence_length) {
  return {.set = TokensSpec{.sequence_length = sequence_length}, .path = folder.string()};
}

std::string encode_jpeg(int width, int height, const std::vector<uint8_t>& pixels,
                        const JpegOptions& options) {
  const size_t components = pixels.size() / (static_cast<size_t>(width) * static_cast<size_t>(height));
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &bytes, &size);
  info.image_width = static_cast<JDIMENSION>(width);
  info.image_height = static_cast<JDIMENSION>(height);
  info.input_components = static_cast<int>(components);
  info.in_color_space = components == 1 ? JCS_GRAYSCALE : components == 3 ? JCS_RGB : JCS_CMYK;
  jpeg_set_defaults(&info);
  if (options.ycck) jpeg_set_colorspace(&info, JCS_YCCK);
  jpeg_set_quality(&info, options.quality, TRUE);
  for (int i = 0; i < info.num_components; ++i) {
    const bool sampled_in_full = i == 0 || i == 3;
    info.comp_info[i].h_samp_factor = sampled_in_full ? options.across : 1;
    info.comp_info[i].v_samp_factor = sampled_in_full ? options.down : 1;
  }
  if (options.odd_sampling) {
    info.comp_info[0].h_samp_factor = 2;
    info.comp_info[1].v_samp_factor = 4;
  }
  if (options.progressive) jpeg_simple_progression(&info);
  jpeg_start_compress(&info, TRUE);
  const size_t stride = static_cast<size_t>(width) * components;
  for (size_t y = 0; y < static_cast<size_t>(height); ++y) {
    JSAMPROW row = const_cast<JSAMPROW>(pixels.data() + y * stride);
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  std::string result(reinterpret_cast<char*>(bytes), size);
  std::free(bytes);
  return result;
}

std::vector<uint8_t> decoded(std::span<const uint8_t> jpeg, const Box& box, int eighths) {
  const Pixels pixels = open_jpeg(jpeg)->decode(box, eighths);
  if (pixels.width() != box.width() || pixels.height() != box.height())
    throw std::logic_error("pixels of another box");
  std::vector<uint8_t> rgb;
  rgb.reserve(static_cast<size_t>(box.area() * 3));
  for (int64_t y = 0; y < box.height(); ++y)
    for (int64_t x = 0; x < box.width(); ++x)
      rgb.insert(rgb.end(), pixels.row(y) + x * kPixelBytes, pixels.row(y) + x * kPixelBytes + 3);
  return rgb;
}

std::vector<uint8_t> cut_out(std::span<const uint8_t> rgb, int64_t width, const Box& box) {
  std::vector<uint8_t> part;
  for (int64_t y = box.top; y < box.bottom; ++y) {
    const auto row =
        rgb.subspan(static_cast<size_t>((y * width + box.left) * 3), static_cast<size_t>(box.width() * 3));
    part.insert(part.end(), row.begin(), row.end());
  }
  return part;
}

std::string flat_jpeg(int width, int height, const std::vector<uint8_t>& color) {
  std::vector<uint8_t> pixels;
  for (int i = 0; i < width * height; ++i)
    pixels.insert(pixels.end(), color.begin(), color.end());
  return encode_jpeg(width, height, pixels);
}

}  // namespace sdp::testing
